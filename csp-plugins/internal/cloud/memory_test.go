package cloud

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestTheMemoryOfANewerVersion: what a newer plugin has written down of a key, in its
// record and beside it, is there after this one's write.
func TestTheMemoryOfANewerVersion(t *testing.T) {
	m := Memory{Client: fake.NewClientset(), Namespace: "ns", Prefix: "p"}
	maps := m.Client.CoreV1().ConfigMaps(m.Namespace)
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: m.name(digest("key"))},
		Data:       map[string]string{recordKey: `{"verb":"reboot","node":"n","machine":"m","requestID":"r","executed":false,"newer":{"x":[1]}}`, "newer.json": "y"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	known, err := m.recall(t.Context(), "key")
	if err != nil || known.Machine != "m" || known.Executed {
		t.Fatalf("%+v, %v", known, err)
	}
	if err := m.executed(t.Context(), *known); err != nil {
		t.Fatal(err)
	}
	after, err := maps.Get(t.Context(), m.name(digest("key")), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(after.Data[recordKey]), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"verb": "reboot", "node": "n", "machine": "m", "requestID": "r", "executed": true, "newer": map[string]any{"x": []any{1.0}}}
	if diff := cmp.Diff(want, got); diff != "" || after.Data["newer.json"] != "y" {
		t.Errorf("beside it %q (-want +got):\n%s", after.Data["newer.json"], diff)
	}
}
