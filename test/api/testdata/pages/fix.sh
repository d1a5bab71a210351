fails on node-2
