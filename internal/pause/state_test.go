package pause_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestSwitchedBy: what Set wrote names its writer; what another tool wrote over
// it is that tool's, not the earlier writer's.
func TestSwitchedBy(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace, client := cluster.Namespace(t), cluster.Client()
	expect := func(want pause.State) {
		t.Helper()
		got, err := pause.Read(t.Context(), client, namespace)
		if err != nil || got.Since.IsZero() != (want == pause.State{}) {
			t.Errorf("%+v, %v", got, err)
		}
		if got.Since = (time.Time{}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	set := func(s pause.State) {
		t.Helper()
		if err := pause.Set(t.Context(), client, namespace, s); err != nil {
			t.Fatal(err)
		}
	}
	expect(pause.State{})
	set(pause.State{By: "ann"}) // never on
	expect(pause.State{})
	on := pause.State{On: true, By: "ann", Reason: "wrong catalog"}
	set(on)
	expect(on)
	off := pause.State{By: "bob", Reason: "catalog fixed"}
	set(off)
	expect(off)
	by := func(patch string) {
		t.Helper()
		_, err := client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), pause.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-patch"})
		if err != nil {
			t.Fatal(err)
		}
	}
	by(`{"data":{"pause":"on","reason":null}}`)
	expect(pause.State{On: true, By: "kubectl-patch"})
	set(off)
	expect(off)
	by(`{"data":null}`) // a ConfigMap without data is on
	expect(pause.State{On: true})
}

// TestOneEventForAChange: two services watch, and each change makes one Event, a
// deletion too; a service that starts while the emergency stop is on makes no second one.
func TestOneEventForAChange(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace, client := cluster.Namespace(t), cluster.Client()
	watching(t, client, namespace)
	watching(t, client, namespace)
	events := func(want ...string) {
		t.Helper()
		var got []string
		testkit.Until(t, 2*time.Minute, func() bool {
			list, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			for _, e := range list.Items {
				got = append(got, e.Type+" "+e.Reason+": "+e.Message)
			}
			return len(got) >= len(want)
		})
		slices.Sort(got)
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("events %q, want %q", got, want)
		}
	}
	if err := pause.Set(t.Context(), client, namespace, pause.State{On: true, By: "ann", Reason: "wrong catalog"}); err != nil {
		t.Fatal(err)
	}
	const on = "Warning NVSentinelPaused: The emergency stop is on: cordons, evictions, remediations and signals are paused, recoveries and releases continue"
	events(on + ", set by ann: wrong catalog")
	watching(t, client, namespace)
	if err := pause.Set(t.Context(), client, namespace, pause.State{By: "bob"}); err != nil {
		t.Fatal(err)
	}
	const off = "Normal NVSentinelResumed: The emergency stop is off, pending work continues"
	events(off+", set by bob", on)
	m, err := client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), pause.Name, types.MergePatchType, []byte(`{"data":{"pause":"on"}}`), metav1.PatchOptions{FieldManager: "kubectl-patch"})
	if err != nil {
		t.Fatal(err)
	}
	events(off, on+", set by ann", on+", set by kubectl-patch")
	if err := client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	events(off, off, on+", set by ann", on+", set by kubectl-patch")
}

// watching runs a service's Switch until the test ends, and waits until it has read.
func watching(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	run(t, pause.New(client, namespace, slog.New(slog.DiscardHandler)))
}

// run runs a Switch until the test ends, and waits until it has read.
func run(t *testing.T, b *pause.Switch) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	testkit.Until(t, 2*time.Minute, func() bool { return !b.Unread() })
}
