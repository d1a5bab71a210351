// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// receiver is an endpoint that answers as it is told, and keeps what it gets.
type receiver struct {
	*httptest.Server
	answers func(attempt int, e event, w http.ResponseWriter)

	mu  sync.Mutex
	got []event
}

func newReceiver(t *testing.T, answers func(attempt int, e event, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{answers: answers}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var e event
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		if err != nil || request.Method != http.MethodPost ||
			request.Header.Get("Content-Type") != "application/cloudevents+json; charset=utf-8" {
			t.Errorf("%v, the request is a %s with %v and the body %s", err, request.Method, request.Header, body)
		}
		r.mu.Lock()
		r.got = append(r.got, e)
		attempt := len(r.got)
		r.mu.Unlock()
		if r.answers != nil {
			r.answers(attempt, e, w)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) events() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// running is a notifier that runs, with a clock that only pauses advance.
type running struct {
	*Notifier
	mu     sync.Mutex
	now    time.Time
	pauses []time.Duration
	woken  chan types.NamespacedName
	stop   func()
}

func run(t *testing.T, config Config) *running {
	t.Helper()
	if config.Format == "" {
		config.Format = FormatCloudEvents
	}
	r := &running{Notifier: New(config, prometheus.NewRegistry()), now: noon, woken: make(chan types.NamespacedName, 1000)}
	r.Now = func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.now
	}
	r.After = func(d time.Duration) <-chan time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pauses = append(r.pauses, d)
		r.now = r.now.Add(d)
		fires := make(chan time.Time, 1)
		fires <- r.now
		return fires
	}
	r.Random = func() float64 { return 0 }
	r.OnHandled(KindNodeJob, func(_ context.Context, name types.NamespacedName) { r.woken <- name })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// handled waits until a number of notifications need not be sent any more.
func (r *running) handled(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-r.woken:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d notifications are not handled", n)
		}
	}
}

func (r *running) paused() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pauses)
}

// stored is a NodeJob whose status has notifications of some types.
func stored(name string, kinds ...v1alpha1.NotificationType) *v1alpha1.NodeJob {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)}}
	job.Status.ControllerState.Notifications = &v1alpha1.NodeJobNotifications{}
	for _, kind := range kinds {
		job.Status.ControllerState.Notifications.Pending = append(
			job.Status.ControllerState.Notifications.Pending,
			v1alpha1.Notification{Type: kind, Time: metav1.NewTime(noon), Revision: "rev"},
		)
	}
	return job
}

func summary(events []event) []string {
	var lines []string
	for i := range events {
		lines = append(lines, events[i].Data.Name+" "+strings.TrimPrefix(events[i].Type, "dev.everynode.nodejob."))
	}
	return lines
}

func fails(code int, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

func TestAnEndpointThatAnswers500ForAnHourGetsEachNotificationInItsOrder(t *testing.T) {
	var r *running
	endpoint := newReceiver(t, func(_ int, _ event, w http.ResponseWriter) {
		if r.Now().Before(noon.Add(time.Hour)) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r = run(t, Config{URL: endpoint.URL})
	r.OfferNodeJob(stored("job", v1alpha1.NotificationStarted, v1alpha1.NotificationComplete))
	r.handled(t, 2)
	pauses := r.paused()
	if diff := cmp.Diff([]time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}, seconds(pauses)[:11]); diff != "" {
		t.Errorf("the pauses (-want +got):\n%s", diff)
	}
	events := endpoint.events()
	if len(events) != len(pauses)+2 || events[0].ID != events[len(pauses)].ID {
		t.Errorf("%d requests in %d pauses, with the ids %s and %s", len(events), len(pauses), events[0].ID, events[len(pauses)].ID)
	}
	if last := summary(events[len(events)-2:]); !slices.Equal(last, []string{"job started", "job complete"}) {
		t.Errorf("the last requests are %v", last)
	}
	if got := testutil.ToFloat64(r.metrics.failures); got != float64(len(pauses)) {
		t.Errorf("%v failures are counted, want %d", got, len(pauses))
	}
}

// seconds makes the pauses readable.
func seconds(pauses []time.Duration) []time.Duration {
	var numbers []time.Duration
	for _, p := range pauses {
		numbers = append(numbers, p/time.Second)
	}
	return numbers
}

func TestPausesAreRandomInTheirSecondHalf(t *testing.T) {
	n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
	n.Random = func() float64 { return 0.999999 }
	for failures, want := range map[int]time.Duration{1: 500 * time.Millisecond, 3: 2 * time.Second, 100: 150 * time.Second} {
		if got := n.pause(failures, 0).Round(time.Millisecond); got != want {
			t.Errorf("after %d failures, the shortest pause is %s, want %s", failures, got, want)
		}
	}
}

// TestAnswersOfTheEndpoint sends one notification, which the second answer accepts.
func TestAnswersOfTheEndpoint(t *testing.T) {
	for name, tt := range map[string]struct {
		answer       func(http.ResponseWriter)
		wantRequests int
		wantPause    time.Duration
		wantOutcome  string
	}{
		"200":                              {fails(200), 1, 0, outcomeDelivered},
		"202":                              {fails(202), 1, 0, outcomeDelivered},
		"400 will always be 400":           {fails(400), 1, 0, outcomeRejected},
		"410":                              {fails(410), 1, 0, outcomeRejected},
		"413":                              {fails(413), 1, 0, outcomeRejected},
		"401, until a credential is right": {fails(401), 2, time.Second, outcomeDelivered},
		"403, until a credential is right": {fails(403), 2, time.Second, outcomeDelivered},
		"404, until the path is right":     {fails(404), 2, time.Second, outcomeDelivered},
		"408":                              {fails(408), 2, time.Second, outcomeDelivered},
		"500":                              {fails(500), 2, time.Second, outcomeDelivered},
		"503 with a short Retry-After":     {fails(503, "Retry-After", "0"), 2, time.Second, outcomeDelivered},
		"503 with a Retry-After":           {fails(503, "Retry-After", "90"), 2, 90 * time.Second, outcomeDelivered},
		"429":                              {fails(429), 2, time.Second, outcomeDelivered},
		"429 with a Retry-After":           {fails(429, "Retry-After", "120"), 2, 2 * time.Minute, outcomeDelivered},
		"429 with a date":                  {fails(429, "Retry-After", noon.Add(time.Minute).Format(http.TimeFormat)), 2, time.Minute, outcomeDelivered},
		"429 with a date in the past":      {fails(429, "Retry-After", noon.Add(-time.Minute).Format(http.TimeFormat)), 2, time.Second, outcomeDelivered},
		"429 with a Retry-After of days":   {fails(429, "Retry-After", "999999"), 2, time.Hour, outcomeDelivered},
		"429 with nonsense":                {fails(429, "Retry-After", "-5"), 2, time.Second, outcomeDelivered},
		"a redirect":                       {fails(307, "Location", "http://elsewhere.test/"), 2, time.Second, outcomeDelivered},
		"a response that is cut off": {func(w http.ResponseWriter) {
			connection, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = connection.Close()
			}
		}, 2, time.Second, outcomeDelivered},
		"a large header": {fails(200, "X", strings.Repeat("x", 2*maxHeaderBytes)), 2, time.Second, outcomeDelivered},
		"a large response": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}, 1, 0, outcomeDelivered},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := newReceiver(t, func(attempt int, _ event, w http.ResponseWriter) {
				if attempt == 1 {
					tt.answer(w)
				}
			})
			r := run(t, Config{URL: endpoint.URL})
			r.OfferNodeJob(stored("job", v1alpha1.NotificationStarted))
			r.handled(t, 1)
			r.stop()
			if got := endpoint.events(); len(got) != tt.wantRequests {
				t.Errorf("%d requests, want %d", len(got), tt.wantRequests)
			}
			var want []time.Duration
			if tt.wantPause > 0 {
				want = append(want, tt.wantPause)
			}
			if diff := cmp.Diff(want, r.paused()); diff != "" {
				t.Errorf("the pauses (-want +got):\n%s", diff)
			}
			if testutil.ToFloat64(r.metrics.outcomes.WithLabelValues(tt.wantOutcome)) != 1 {
				t.Errorf("the outcome is not %s", tt.wantOutcome)
			}
		})
	}
}

func TestANotificationThatTheEndpointNeverAcceptsDoesNotBlockOthersAndExpires(t *testing.T) {
	var r *running
	endpoint := newReceiver(t, func(attempt int, e event, w http.ResponseWriter) {
		if attempt == 1 {
			r.OfferNodeJob(stored("job", v1alpha1.NotificationStarted))
		}
		if e.Data.Name == "poison" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r = run(t, Config{URL: endpoint.URL})
	r.OfferNodeJob(stored("poison", v1alpha1.NotificationStarted))
	r.handled(t, 2)
	if got := summary(endpoint.events()[:3]); !slices.Equal(got, []string{"poison started", "job started", "poison started"}) {
		t.Errorf("the first requests are %v", got)
	}
	if got := testutil.ToFloat64(r.metrics.outcomes.WithLabelValues(outcomeExpired)); got != 1 {
		t.Errorf("%v notifications have expired, want 1", got)
	}
	if now := r.Now(); now.Before(noon.Add(expireAfter)) || now.After(noon.Add(expireAfter+time.Hour)) {
		t.Errorf("it expired at %s", now)
	}
	if got := testutil.ToFloat64(r.metrics.outcomes.WithLabelValues(outcomeDelivered)); got != 1 {
		t.Errorf("%v notifications are delivered, want 1", got)
	}
}

func TestAnotherManagerSendsWhatIsStored(t *testing.T) {
	endpoint := newReceiver(t, nil)
	job := stored("job", v1alpha1.NotificationStarted, v1alpha1.NotificationComplete)
	var ids [2][]string
	for i := range ids {
		r := run(t, Config{URL: endpoint.URL})
		r.OfferNodeJob(job)
		r.OfferNodeJob(job) // as each pass does
		r.handled(t, 2)
		r.stop()
		for _, e := range endpoint.events()[2*i:] {
			ids[i] = append(ids[i], e.ID)
		}
	}
	if diff := cmp.Diff(ids[0], ids[1]); diff != "" {
		t.Errorf("the ids (-first +second manager):\n%s", diff)
	}
}

// TestADeliveredNotificationLeavesTheStatus plays the passes of a controller.
func TestADeliveredNotificationLeavesTheStatus(t *testing.T) {
	endpoint := newReceiver(t, nil)
	r := run(t, Config{URL: endpoint.URL})
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid"}}
	pass := func(change func(*v1alpha1.NodeJobStatus)) (writes bool, next time.Duration) {
		r.OfferNodeJob(job)
		after := moving("one")
		if job.Status.ControllerState.Notifications != nil {
			after = *job.Status.DeepCopy()
		}
		after.ControllerState.Notifications = nil // the planner does not know them
		if change != nil {
			change(&after)
		}
		next = r.NodeJob(job, &after, 0)
		if cmp.Equal(job.Status, after) {
			return false, next
		}
		job.Status = after
		r.OfferNodeJob(job)
		return true, next
	}
	if writes, _ := pass(nil); !writes || len(job.Status.ControllerState.Notifications.Pending) != 1 {
		t.Fatalf("the status has %+v", job.Status.ControllerState.Notifications)
	}
	r.handled(t, 1)
	if writes, next := pass(nil); writes || next != keepFor {
		t.Errorf("a pass directly after the delivery writes: %v, and the next one is after %s", writes, next)
	}
	if writes, _ := pass(
		func(st *v1alpha1.NodeJobStatus) { st.Nodes.Done++ },
	); !writes ||
		len(job.Status.ControllerState.Notifications.Pending) != 0 {
		t.Errorf("after another change, the status has %+v", job.Status.ControllerState.Notifications)
	}
	if writes, _ := pass(
		func(st *v1alpha1.NodeJobStatus) { *st = complete() },
	); !writes ||
		len(job.Status.ControllerState.Notifications.Pending) != 3 {
		t.Errorf("the status has %+v", job.Status.ControllerState.Notifications)
	}
	r.handled(t, 3)
	r.After(keepFor)
	if writes, next := pass(nil); !writes || next != 0 || len(job.Status.ControllerState.Notifications.Pending) != 0 {
		t.Errorf(
			"a later pass writes: %v, the next one is after %s, and the status has %+v",
			writes,
			next,
			job.Status.ControllerState.Notifications,
		)
	}
	if writes, next := pass(nil); writes || next != 0 {
		t.Errorf("a pass at rest writes: %v, and the next one is after %s", writes, next)
	}
	if len(r.queue.objects)+len(r.queue.turns) != 0 {
		t.Errorf("the queue remembers %v", r.queue.objects)
	}
	if got := endpoint.events(); len(got) != 4 {
		t.Errorf("%d requests, want 4", len(got))
	}
}

func TestAStatusThatDoesNotChangeIsNotWrittenWhenNotificationsAreEnabled(t *testing.T) {
	n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
	job := &v1alpha1.NodeJob{Status: complete()}
	after := complete()
	if next := n.NodeJob(job, &after, 0); next != 0 || after.ControllerState.Notifications != nil {
		t.Errorf("the next pass is after %s, and the status has %+v", next, after.ControllerState.Notifications)
	}
}

func TestWithoutAURLTheStatusHasNoNotifications(t *testing.T) {
	n := New(Config{Format: FormatCloudEvents}, prometheus.NewRegistry())
	job := stored("job", v1alpha1.NotificationStarted)
	after := moving("one")
	if next := n.NodeJob(job, &after, time.Minute); n != nil || next != time.Minute || after.ControllerState.Notifications != nil {
		t.Errorf("the notifier is %v, the next pass is after %s, and the status has %+v", n, next, after.ControllerState.Notifications)
	}
	n.OfferNodeJob(job)
	n.Deleted(KindNodeJob, types.NamespacedName{})
}

func TestPendingNotificationsAreLimited(t *testing.T) {
	n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid"}}
	for i := range maxPending + 5 {
		after := moving("one", revision(fmt.Sprint("rev-", i)))
		n.NodeJob(job, &after, 0)
		job.Status = after
		n.OfferNodeJob(job)
	}
	pending := job.Status.ControllerState.Notifications.Pending
	if len(pending) != maxPending || pending[0].Revision != "rev-5" || n.queue.length() != maxPending {
		t.Errorf("%d are pending, the first is %s, and the queue has %d", len(pending), pending[0].Revision, n.queue.length())
	}
	if got := testutil.ToFloat64(n.metrics.outcomes.WithLabelValues(outcomeOverflowed)); got != 5 {
		t.Errorf("%v are counted as overflowed, want 5", got)
	}
}

func TestNotificationsOfDeletedObjectsAreSentAndLimited(t *testing.T) {
	n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
	for i := range maxOrphans + 10 {
		job := stored(fmt.Sprint("job-", i), v1alpha1.NotificationStarted)
		n.OfferNodeJob(job)
		n.Deleted(KindNodeJob, types.NamespacedName{Namespace: "ns", Name: job.Name})
	}
	if got := n.queue.length(); got != maxOrphans {
		t.Errorf("%d wait, want %d", got, maxOrphans)
	}
	if got := testutil.ToFloat64(n.metrics.outcomes.WithLabelValues(outcomeOverflowed)); got != 10 {
		t.Errorf("%v are counted as overflowed, want 10", got)
	}
	again := stored("job-0", v1alpha1.NotificationStarted)
	again.UID = "another"
	n.OfferNodeJob(again)
	for range maxOrphans + 1 {
		o, next, _ := n.queue.next(noon)
		if next.id == "" {
			t.Fatal("the queue is empty")
		}
		n.queue.handle(o, next.id, noon)
	}
	if len(n.queue.objects) != 1 || len(n.queue.turns) != 0 {
		t.Errorf("the queue remembers %v, want only the new object", n.queue.objects)
	}
}

func TestANamespaceDoesNotDelayAnother(t *testing.T) {
	n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
	change := func(i, edit int) {
		job := stored(fmt.Sprint("busy-", i), v1alpha1.NotificationStarted, v1alpha1.NotificationComplete)
		job.Namespace = "busy"
		for k := range job.Status.ControllerState.Notifications.Pending {
			job.Status.ControllerState.Notifications.Pending[k].Revision = fmt.Sprint("rev-", edit)
		}
		n.OfferNodeJob(job)
	}
	for i := range 100 {
		change(i, 0)
	}
	quiet := stored("quiet", v1alpha1.NotificationStarted)
	quiet.Namespace = "quiet"
	n.OfferNodeJob(quiet)
	for sent := 1; sent <= 2; sent++ {
		o, next, _ := n.queue.next(noon)
		if o.Namespace == "quiet" {
			return
		}
		n.queue.handle(o, next.id, noon)
		for i := range 100 {
			change(i, sent)
		}
	}
	t.Error("two notifications of the other namespace are sent first")
}

func TestARejectionPausesOnlyItsObject(t *testing.T) {
	endpoint := newReceiver(t, func(_ int, e event, w http.ResponseWriter) {
		if e.Data.Name == "large" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	r := run(t, Config{URL: endpoint.URL})
	large := stored("large", v1alpha1.NotificationStarted, v1alpha1.NotificationStopped, v1alpha1.NotificationComplete)
	job := stored("job", v1alpha1.NotificationStarted, v1alpha1.NotificationComplete)
	r.stop()
	n := r.Notifier
	n.OfferNodeJob(large)
	n.OfferNodeJob(job)
	var got []string
	now := noon
	n.Now = func() time.Time { return now }
	for range 6 {
		o, next, wait := n.queue.next(now)
		if next.id == "" {
			got = append(got, wait.String())
			now = now.Add(wait)
			continue
		}
		n.send(t.Context(), o, &next)
		got = append(got, o.Name)
	}
	if diff := cmp.Diff([]string{"large", "job", "job", "1s", "large", "2s"}, got); diff != "" {
		t.Errorf("what is sent, and the pauses (-want +got):\n%s", diff)
	}
}

func TestATimeInTheFutureExpires(t *testing.T) {
	endpoint := newReceiver(t, func(_ int, _ event, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	r := run(t, Config{URL: endpoint.URL})
	job := stored("job", v1alpha1.NotificationStarted)
	job.Status.ControllerState.Notifications.Pending[0].Time = metav1.NewTime(noon.AddDate(900, 0, 0))
	r.OfferNodeJob(job)
	r.handled(t, 1)
	if got := testutil.ToFloat64(r.metrics.outcomes.WithLabelValues(outcomeExpired)); got != 1 {
		t.Errorf("%v notifications have expired, want 1", got)
	}
	if got := endpoint.events()[0].Time; got.After(noon) {
		t.Errorf("the time that is sent is %s", got)
	}
	after := moving("one")
	r.After(keepFor)
	r.NodeJob(job, &after, 0)
	for _, p := range after.ControllerState.Notifications.Pending {
		if p.Time.After(noon.AddDate(1, 0, 0)) {
			t.Error("the expired notification stays in the status")
		}
	}
}

func TestTextsOfAStatusAreCleanAndLimited(t *testing.T) {
	n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
	job := stored("job", slices.Repeat([]v1alpha1.NotificationType{v1alpha1.NotificationStarted}, 100)...)
	text := "\x1b[2J" + strings.Repeat("x", 1<<20)
	for i := range job.Status.ControllerState.Notifications.Pending {
		p := &job.Status.ControllerState.Notifications.Pending[i]
		p.Revision = fmt.Sprint("rev-", i)
		p.Message, p.ChangedBy, p.Reason, p.Step = text, text, text, text
	}
	job.Status.ControllerState.Notifications.Pending[99].Type = "Other"
	n.OfferNodeJob(job)
	if got := n.queue.length(); got != maxPending-1 {
		t.Errorf("%d wait, want %d", got, maxPending-1)
	}
	o, next, _ := n.queue.next(noon)
	body, _, err := Encode(FormatCloudEvents, DefaultSource, o, &next.Notification)
	if err != nil || len(body) > 4<<10 || strings.Contains(next.Message+next.ChangedBy+next.Reason+next.Step, "\x1b") {
		t.Errorf("%v, the body has %d bytes and begins with %.300s", err, len(body), body)
	}
}

func TestNothingIsSentForANamespaceThatIsNotAllowed(t *testing.T) {
	n := New(Config{URL: "http://endpoint.test"}, prometheus.NewRegistry())
	job := stored("job", v1alpha1.NotificationStarted)
	n.OfferNodeJob(job)
	after := moving("two", func(st *v1alpha1.NodeJobStatus) {
		meta.SetStatusCondition(
			&st.Conditions,
			metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNamespaceNotAllowed},
		)
	})
	n.NodeJob(job, &after, 0)
	if got := after.ControllerState.Notifications.Pending; len(got) != 0 {
		t.Errorf("the status has %+v", got)
	}
	job.Status.Conditions = after.Conditions
	n.OfferNodeJob(job)
	if got := n.queue.length(); got != 0 {
		t.Errorf("%d wait, want none", got)
	}
}
