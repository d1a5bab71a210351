# Functions for the states in which the pages show their commands.

# await NODEJOB CONDITION
await() {
  kubectl -n node-setup wait --timeout=60s "nodejob/$1" --for="$2"
}

# fail NODEJOB NODE: the task fails on the node, and so does its rollback.
fail() {
  kubectl -n node-setup patch nodejob "$1" --type=merge -p '{"spec": {
    "retry": {"limit": 0}, "task": {"script": "fails on '"$2"'"}, "rollback": {"script": "fails on '"$2"'"}}}'
  await "$1" condition=Stalled
}

# again NODEJOB: the NodeJob of the page, as if it were new.
again() {
  kubectl -n node-setup delete nodejob "$1" --ignore-not-found
  kubectl apply -f "$1.yaml"
}

# mix NODE: the NodeJob core-pattern does not end on the node, and has failed on another one, which cannot be drained.
mix() {
  kubectl -n node-setup delete nodejob core-pattern --ignore-not-found
  sed "s/NODE/$1/" mixed.yaml | kubectl apply -f blocked.yaml -f -
  await core-pattern jsonpath='{.status.nodes.done}'=1
  await core-pattern jsonpath='{.status.drains}'
}
