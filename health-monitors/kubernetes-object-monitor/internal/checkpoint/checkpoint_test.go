package checkpoint

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// stateOf is an encoded state with one open fault, of an object.
func stateOf(t *testing.T, object string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write([]byte(`{"version":1,"epoch":"e","open":[{"policy":"P","type":"v1/Node","object":"` + object + `","node":"n1","class":"Node","strategy":"PROCESS"}]}`))
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestTheFormerKeyIsRead where there is no other, and the first write drops it.
func TestTheFormerKeyIsRead(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	for name, tt := range map[string]struct {
		data map[string][]byte
		want []machine.Key
	}{
		"former": {map[string][]byte{"book.json.gz": stateOf(t, "former")}, []machine.Key{{Policy: "P", Type: "v1/Node", Object: "former"}}},
		"both":   {map[string][]byte{"book.json.gz": stateOf(t, "former"), "checkpoint.json.gz": stateOf(t, "present")}, []machine.Key{{Policy: "P", Type: "v1/Node", Object: "present"}}},
	} {
		t.Run(name, func(t *testing.T) {
			maps := cluster.Client().CoreV1().ConfigMaps(cluster.Namespace(t))
			m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "state"}, BinaryData: tt.data}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c := &Checkpoint{Client: cluster.Client(), Namespace: m.Namespace, Name: m.Name, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
			if err := c.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := c.Open(); !slices.Equal(got, tt.want) {
				t.Errorf("open are %v, want %v", got, tt.want)
			}
			if err := c.write(t.Context()); err != nil {
				t.Fatal(err)
			}
			m, err = maps.Get(t.Context(), m.Name, metav1.GetOptions{})
			if _, former := m.BinaryData["book.json.gz"]; err != nil || former || len(m.BinaryData["checkpoint.json.gz"]) == 0 {
				t.Errorf("written are %d keys, the former one among them: %t, %v", len(m.BinaryData), former, err)
			}
		})
	}
}
