// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// podLog is every pod that was ever made for a test's NodeJobs, as a watch tells it: looking now and
// then would miss some.
type podLog struct {
	mu   sync.Mutex
	pods []*loggedPod
	// most is how many were there at the same time that had not ended.
	most int
}

type loggedPod struct {
	pod corev1.Pod
	// made is when the watch told of it, and ended when it told of its end.
	made, ended time.Time
	over        bool
}

// logPods begins the log. To be called before the NodeJob is made.
func (w *world) logPods() *podLog {
	w.T.Helper()
	log := &podLog{}
	w.watch(&corev1.PodList{}, func(event watch.Event) {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			log.see(event.Type, pod)
		}
	}, client.HasLabels{v1alpha1.NodeJobLabel})
	return log
}

// watch calls see for each event of the test's namespace, until the test ends.
func (w *world) watch(list client.ObjectList, see func(watch.Event), options ...client.ListOption) {
	w.T.Helper()
	config, err := real.RESTConfig()
	must(w.T, err)
	watcher, err := client.NewWithWatch(config, client.Options{Scheme: admin.Scheme()})
	must(w.T, err)
	events, err := watcher.Watch(w.Ctx, list, append(options, client.InNamespace(w.Namespace))...)
	must(w.T, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range events.ResultChan() {
			see(event)
		}
	}()
	w.T.Cleanup(func() {
		select {
		case <-ended:
			w.T.Errorf("the watch of %T ended too early to have seen all", list)
		default:
		}
		events.Stop()
		<-ended
	})
}

func (l *podLog) see(kind watch.EventType, pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.pods, func(p *loggedPod) bool { return p.pod.UID == pod.UID })
	if i < 0 {
		l.pods = append(l.pods, &loggedPod{made: time.Now()})
		i = len(l.pods) - 1
	}
	l.pods[i].pod = *pod
	l.pods[i].over = kind == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if l.pods[i].over && l.pods[i].ended.IsZero() {
		l.pods[i].ended = time.Now()
	}
	running := 0
	for _, p := range l.pods {
		if !p.over && !hasRun(&p.pod) {
			running++
		}
	}
	l.most = max(l.most, running)
}

// hasRun reports whether all containers of a pod have ended. Its phase says so a second later.
func hasRun(pod *corev1.Pod) bool {
	statuses := pod.Status.ContainerStatuses
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.State.Terminated == nil })
}

// of returns the pods of a NodeJob in the order in which they were made, as they were last.
func (l *podLog) of(job string) []loggedPod {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pods []loggedPod
	for _, p := range l.pods {
		if p.pod.Labels[v1alpha1.NodeJobLabel] == job {
			pods = append(pods, *p)
		}
	}
	return pods
}

// story names the phase, the attempt and the node of each pod of a NodeJob, in the order in which they
// were made.
func (l *podLog) story(job string) []string {
	var story []string
	for _, p := range l.of(job) {
		story = append(
			story,
			fmt.Sprintf(
				"%s %s on %s",
				p.pod.Labels[v1alpha1.PhaseLabel],
				p.pod.Annotations[v1alpha1.AttemptAnnotation],
				p.pod.Spec.NodeName,
			),
		)
	}
	return story
}

// find returns a pod that was there.
func (l *podLog) find(uid types.UID) (loggedPod, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pods {
		if p.pod.UID == uid {
			return *p, true
		}
	}
	return loggedPod{}, false
}

// mostAtOnce is how many pods were there at the same time whose containers had not ended.
func (l *podLog) mostAtOnce() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}
