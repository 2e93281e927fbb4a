package cloud

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// shelf is an API server with one ConfigMap.
type shelf struct {
	kubernetes.Interface
	typed.CoreV1Interface
	typed.ConfigMapInterface
	stored *corev1.ConfigMap
}

func (s *shelf) CoreV1() typed.CoreV1Interface              { return s }
func (s *shelf) ConfigMaps(string) typed.ConfigMapInterface { return s }
func (s *shelf) RESTClient() rest.Interface                 { return nil }

func (s *shelf) Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error) {
	return s.stored.DeepCopy(), nil
}

func (s *shelf) Update(_ context.Context, c *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	s.stored = c.DeepCopy()
	return c, nil
}

// TestTheMemoryOfANewerVersion: what a newer plugin has written down of a key, in its
// record and beside it, is there after this one's write.
func TestTheMemoryOfANewerVersion(t *testing.T) {
	s := &shelf{stored: &corev1.ConfigMap{Data: map[string]string{
		recordKey: `{"verb":"reboot","node":"n","machine":"m","requestID":"r","executed":false,"newer":{"x":[1]}}`, "newer.json": "y",
	}}}
	m := Memory{Client: s, Namespace: "ns", Prefix: "p"}
	known, err := m.recall(t.Context(), "key")
	if err != nil || known.Machine != "m" || known.Executed {
		t.Fatalf("%+v, %v", known, err)
	}
	if err := m.executed(t.Context(), *known); err != nil {
		t.Fatal(err)
	}
	after := s.stored
	var got map[string]any
	if err := json.Unmarshal([]byte(after.Data[recordKey]), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"verb": "reboot", "node": "n", "machine": "m", "requestID": "r", "executed": true, "newer": map[string]any{"x": []any{1.0}}}
	if diff := cmp.Diff(want, got); diff != "" || after.Data["newer.json"] != "y" {
		t.Errorf("beside it %q (-want +got):\n%s", after.Data["newer.json"], diff)
	}
}
