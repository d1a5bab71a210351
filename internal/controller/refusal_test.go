package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
)

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "job-0123456789", errors.New(why))
}

// terminating is what the API server answers in a namespace that is being deleted.
func terminating(why string) error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "job-0123456789", errors.New(why))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		err  error
		want *plan.Obstacle
	}{
		"Pod Security": {
			forbidden(`violates PodSecurity "restricted:latest": privileged (container "task" must not set securityContext.privileged=true)`),
			&plan.Obstacle{Reason: v1alpha1.ReasonPodForbidden, Message: `the API server refuses the task's pod in namespace ns: violates PodSecurity "restricted:latest": privileged ` +
				`(container "task" must not set securityContext.privileged=true). A task is root on its node: keep NodeJobs in a namespace of their own and allow it there with: ` +
				`kubectl label namespace ns pod-security.kubernetes.io/enforce=privileged --overwrite`},
		},
		"a quota": {
			forbidden("exceeded quota: pods, requested: pods=1, used: pods=10, limited: pods=10"),
			&plan.Obstacle{Reason: v1alpha1.ReasonPodForbidden, Message: "the API server refuses the task's pod in namespace ns: exceeded quota: pods, requested: pods=1, used: pods=10, limited: pods=10. " +
				"Allow the pod in namespace ns (quota, limits, admission policies), or move the NodeJob to a namespace that does"},
		},
		"a namespace that is being deleted": {
			terminating("unable to create new content in namespace ns because it is being terminated"),
			&plan.Obstacle{Reason: v1alpha1.ReasonNamespaceTerminating, Message: "the API server refuses the task's pod in namespace ns: unable to create new content in namespace ns because it is being terminated. " +
				"Namespace ns is being deleted, and the NodeJob with it: nothing more can run"},
		},
		"a template that makes no pod": {
			apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "job-0123456789", field.ErrorList{field.Required(field.NewPath("spec", "containers").Index(0).Child("image"), "")}),
			&plan.Obstacle{Reason: v1alpha1.ReasonPodInvalid, Message: "the API server refuses the task's pod in namespace ns: spec.containers[0].image: Required value. Correct spec.task of the NodeJob in namespace ns"},
		},
		"a request that nobody understands": {
			apierrors.NewBadRequest("strict decoding error"),
			&plan.Obstacle{Reason: v1alpha1.ReasonPodInvalid, Message: "the API server refuses the task's pod in namespace ns: strict decoding error. Correct spec.task of the NodeJob in namespace ns"},
		},
		"too many requests pass by themselves":    {apierrors.NewTooManyRequests("slow down", 1), nil},
		"a time-out says nothing of the pod":      {apierrors.NewTimeoutError("etcd", 1), nil},
		"an API server that is away says nothing": {errors.New("connection refused"), nil},
		"a webhook that is away": {
			apierrors.NewInternalError(errors.New(`calling webhook "x": connection refused`)),
			&plan.Obstacle{Reason: v1alpha1.ReasonPodNotCreated, Message: `the API server refuses the task's pod in namespace ns: Internal error occurred: calling webhook "x": connection refused. ` +
				"Nothing is wrong with the NodeJob: see what answers for pods in namespace ns, such as an admission webhook that is away. It goes on by itself"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid", Generation: 1}}
			r := newRefusals()
			if got, want := isRefusal(tt.err), tt.want != nil; got != want {
				t.Fatalf("refused: %v, want %v", got, want)
			} else if got {
				r.note(job, tt.err, noon)
			}
			if tt.want != nil {
				tt.want.RetryAt = noon.Add(firstRefusalWait)
			}
			if diff := cmp.Diff(tt.want, r.obstacle(job)); diff != "" {
				t.Errorf("obstacle (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusalsAreTriedAgainLessAndLessOften(t *testing.T) {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid", Generation: 1}}
	r := newRefusals()
	var waits []time.Duration
	for range 6 {
		r.note(job, forbidden("no"), noon)
		waits = append(waits, r.obstacle(job).RetryAt.Sub(noon))
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, longestRefusalWait, longestRefusalWait}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}

	changed := job.DeepCopy()
	changed.Generation = 2
	if got := r.obstacle(changed); got != nil {
		t.Errorf("the NodeJob was changed and is still held back by %+v", got)
	}
	r.note(changed, forbidden("no"), noon)
	if got := r.obstacle(changed).RetryAt.Sub(noon); got != firstRefusalWait {
		t.Errorf("it waits %v after the change, want %v", got, firstRefusalWait)
	}
	r.clear(client.ObjectKeyFromObject(job))
	if got := r.obstacle(changed); got != nil {
		t.Errorf("a pod was made, and the NodeJob is still held back by %+v", got)
	}
}

// The condition's message must not differ from node to node, nor be longer than a person reads.
func TestRefusalsAreStableAndBounded(t *testing.T) {
	message := func(pod, why string) string {
		r := newRefusals()
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: "job-uid"}}
		r.note(job, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod, errors.New(why)), noon)
		return r.obstacle(job).Message
	}
	if a, b := message("job-1", "no"), message("job-2", "no"); a != b {
		t.Errorf("%q for one pod, %q for the next", a, b)
	}
	long := message("job-1", "first this"+strings.Repeat(" and ä\x1b[31m that", 1000))
	if len(long) > 1024 || strings.Contains(long, "\x1b") {
		t.Errorf("%d bytes: %q", len(long), long)
	}
	if !strings.Contains(long, "first this and") {
		t.Errorf("the beginning is lost: %q", long)
	}
}

func TestHead(t *testing.T) {
	tests := map[string]struct {
		text string
		n    int
		want string
	}{
		"what fits stays":              {"abc", 3, "abc"},
		"what does not is cut":         {"abcdefgh", 6, "abc..."},
		"no character is cut in two":   {"abä234", 6, "ab..."},
		"nothing is nothing":           {"", 6, ""},
		"a text of characters of four": {"😀😀😀", 8, "😀..."},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := head(tt.text, tt.n); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestStripKeepsWhatThePlanReads(t *testing.T) {
	pod := livePod(func(p *corev1.Pod) {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "EVERYNODE_SCRIPT", Value: strings.Repeat("x", 65536)}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{terminated("task", 3, "Error", "no")}
	})
	want := viewPod(seenPod{Pod: pod.DeepCopy()})
	if diff := cmp.Diff(want, viewPod(seenPod{Pod: strip(pod).(*corev1.Pod)})); diff != "" {
		t.Errorf("the plan sees another pod (-before +after):\n%s", diff)
	}
	if len(pod.ManagedFields) > 0 || len(pod.Spec.Containers[0].Env) > 0 {
		t.Error("the script and the managed fields are still there")
	}

	node := watchedNode()
	node.Spec.Unschedulable = true
	node.Annotations[v1alpha1.CordonedAnnotation] = "ns.everynode.dev/job"
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}}
	wantNode := viewNode(node.DeepCopy())
	gotNode := viewNode(strip(node).(*corev1.Node))
	if diff := cmp.Diff(wantNode, gotNode); diff != "" {
		t.Errorf("the plan sees another node (-before +after):\n%s", diff)
	}
	if len(node.Status.Images) > 0 {
		t.Error("the images are still there")
	}
	if other := (&corev1.Secret{}); strip(other) != any(other) {
		t.Error("an object of another kind is not left alone")
	}
}

// What was decoded is kept until the annotation, the NodeJob or the node is another.
func TestRecordsAreDecodedOnce(t *testing.T) {
	const key = "ns.everynode.dev/job"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{key: "rev"},
		Annotations: map[string]string{key: `{"revision":"rev","outcome":"Succeeded","attempts":1}`},
	}}
	r := newRecords()
	first := r.read(node.Name, node.Labels, node.Annotations, key)
	if again := r.read(node.Name, node.Labels, node.Annotations, key); again.Record != first.Record || again.Label != "rev" || !again.Present {
		t.Errorf("read again it is %+v, want the same record", again)
	}
	delete(node.Labels, key)
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record != first.Record || got.Label != "" {
		t.Errorf("without its label it is %+v", got)
	}
	node.Annotations[key] = `{"revision":"other","outcome":"Failed","attempts":2}`
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record == nil || got.Record.Revision != "other" {
		t.Errorf("with another annotation it is %+v", got.Record)
	}
	node.Annotations[key] = "nonsense"
	for range 2 {
		if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record != nil || !got.Present {
			t.Errorf("with nonsense it is %+v", got)
		}
	}
	delete(node.Annotations, key)
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Present {
		t.Errorf("with nothing it is %+v", got)
	}
	for name, forget := range map[string]func(){"the NodeJob": func() { r.forget(key) }, "the node": func() { r.forgetNode("n") }} {
		node.Annotations[key] = "nonsense"
		r.read(node.Name, node.Labels, node.Annotations, key)
		forget()
		if len(r.seen[key]) != 0 {
			t.Errorf("%s is gone, and %v is kept", name, r.seen)
		}
	}
}
