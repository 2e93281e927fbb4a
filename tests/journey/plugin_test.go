package journey

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// The audience of the plugin of these journeys, and its only caller.
const (
	pluginAudience = "csp-plugin"
	pluginCaller   = "system:serviceaccount:nvsentinel:janitor"
)

// TestPluginJourney: faults the whole way, with a plugin that verifies who calls
// it. A janitor under the wrong service account is denied: nothing is rebooted,
// and object, Events and record show why. With the right one, a plugin that is down at the fault
// and comes back makes one reboot, and no object fails.
func TestPluginJourney(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	f, err := fleet.Start(t.Context(), fleet.Options{
		Nodes: 2, Store: "sqlite", SettleTime: time.Second, RebootTime: time.Second, Root: build(t), Bin: bin, Progress: testLog{t},
		JanitorFlags: []string{"--csp-plugin-token-file", token},
		PluginFlags:  []string{"--audience", pluginAudience, "--callers", pluginCaller},
		// Both nodes of two are in quarantine in the end.
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
		Before: func(ctx context.Context, f *fleet.Fleet) error {
			return writeToken(ctx, f, token, "stranger")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("wrong service account", func(t *testing.T) {
		denied(t, &scenarioRun{fleet: f, scenario: OneFault, node: "gpu-0", limit: StepTimeout})
	})
	if err := writeToken(t.Context(), f, token, "janitor"); err != nil {
		t.Fatal(err)
	}
	t.Run("down at the fault", func(t *testing.T) {
		downAtTheFault(t, &scenarioRun{fleet: f, scenario: OneFault, node: "gpu-1", limit: StepTimeout})
	})
	if t.Failed() {
		t.Log(f.Logs("", 15))
	}
}

// writeToken puts a service account's token for plugins into a file, in one step
// as a kubelet does.
func writeToken(ctx context.Context, f *fleet.Fleet, file, account string) error {
	accounts := f.Cluster.Client().CoreV1().ServiceAccounts("nvsentinel")
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	answer, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{pluginAudience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", []byte(answer.Status.Token), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func denied(t *testing.T, trip *scenarioRun) {
	const why = `"system:serviceaccount:nvsentinel:stranger" is not an allowed identity`
	if err := trip.fault(3, 79); err != nil {
		t.Fatal(err)
	}
	var object unstructured.Unstructured
	err := trip.until(t.Context(), "the denial on the maintenance object and in the record", func(ctx context.Context) (bool, error) {
		list, err := trip.objects(ctx)
		if err != nil || len(list) == 0 {
			return false, err
		}
		object = list[0]
		records, err := trip.faults(ctx)
		return completed(object) && slices.ContainsFunc(records, func(r record.Record) bool { return neverSent(r, why) }), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, message := condition(object, "SignalSent"); status != "False" || !strings.Contains(message, why) {
		t.Errorf("SignalSent is %s: %s; want False, and the words %s", status, message, why)
	}
	err = trip.until(t.Context(), "an Event PluginRefused", func(ctx context.Context) (bool, error) {
		return noted(ctx, trip.fleet, object, "PluginRefused")
	})
	if err != nil {
		t.Error(err)
	}
	journal, err := trip.fleet.JournalEntries()
	if err != nil || len(journal) > 0 {
		t.Errorf("the plugin's books are %v, %v; want nothing in them", journal, err)
	}
	node, err := trip.fleet.Node(t.Context(), trip.node)
	if err != nil || !node.Spec.Unschedulable {
		t.Errorf("the node is back in service: %v", err)
	}
	t.Logf("denied: %s", why)
}

// neverSent reports whether an attempt of a record was never sent, for a reason.
func neverSent(r record.Record, why string) bool {
	return r.Status.Remediation != nil && slices.ContainsFunc(r.Status.Remediation.Attempts, func(a record.Attempt) bool {
		return !a.SignalSent && strings.Contains(a.Message, why)
	})
}

func downAtTheFault(t *testing.T, trip *scenarioRun) {
	err := trip.fleet.Service("csp-plugin-kwok").Swap(func() error { // none runs meanwhile
		if err := trip.fault(3, 79); err != nil {
			return err
		}
		return trip.until(t.Context(), "the Event of a plugin that is away", func(ctx context.Context) (bool, error) {
			list, err := trip.objects(ctx)
			if err != nil || len(list) == 0 {
				return false, err
			}
			if completed(list[0]) {
				return false, fmt.Errorf("the object is over: %v", list[0].Object["status"])
			}
			return noted(ctx, trip.fleet, list[0], "PluginUnavailable")
		})
	})
	if err == nil {
		err = trip.until(t.Context(), "the end: all faults closed, no mark left", trip.over)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := trip.fleet.Reboots(trip.node); err != nil || n != 1 {
		t.Errorf("%d reboots, %v; want 1", n, err)
	}
	list, err := trip.objects(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%d maintenance objects, %v; want 1", len(list), err)
	}
	if status, message := condition(list[0], "Succeeded"); status != "True" {
		t.Errorf("Succeeded is %s: %s", status, message)
	}
	t.Log("one reboot, and one maintenance object, which succeeded")
}

// condition is a maintenance object's.
func condition(object unstructured.Unstructured, kind string) (status, message string) {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, x := range list {
		if c, ok := x.(map[string]any); ok && c["type"] == kind {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["message"])
		}
	}
	return "", ""
}

// completed reports whether an object is over.
func completed(object unstructured.Unstructured) bool {
	at, _, _ := unstructured.NestedString(object.Object, "status", "completionTime")
	return at != ""
}

// noted reports whether there is an Event about an object.
func noted(ctx context.Context, f *fleet.Fleet, object unstructured.Unstructured, reason string) (bool, error) {
	list, err := f.Cluster.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(object.GetUID()) + ",reason=" + reason,
	})
	return err == nil && len(list.Items) > 0, err
}
