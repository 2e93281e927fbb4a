package pause_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// TestFormerNames: the ConfigMap and the key of the former names decide where there is
// none of the present name, and a missing key is on.
func TestFormerNames(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	for name, tt := range map[string]struct {
		present, former map[string]string // data of the ConfigMaps; nil is none
		on              bool
	}{
		"none":                         {nil, nil, false},
		"former on":                    {nil, map[string]string{pause.FormerKey: "on"}, true},
		"former off":                   {nil, map[string]string{pause.FormerKey: "off"}, false},
		"former without a key":         {nil, map[string]string{pause.ReasonKey: "x"}, true},
		"present off, former on":       {map[string]string{pause.Key: "off"}, map[string]string{pause.FormerKey: "on"}, false},
		"present on, former off":       {map[string]string{pause.Key: "on"}, map[string]string{pause.FormerKey: "off"}, true},
		"present with the former key":  {map[string]string{pause.FormerKey: "off"}, nil, false},
		"present with both keys":       {map[string]string{pause.Key: "on", pause.FormerKey: "off"}, nil, true},
		"present, no key, former off":  {map[string]string{}, map[string]string{pause.FormerKey: "off"}, true},
		"present, no value, no former": {map[string]string{pause.Key: ""}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, client := cluster.Namespace(t), cluster.Client()
			for name, data := range map[string]map[string]string{pause.Name: tt.present, pause.FormerName: tt.former} {
				if data == nil {
					continue
				}
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
				if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			state, err := pause.Read(t.Context(), client, namespace)
			if err != nil || state.On != tt.on {
				t.Errorf("read: %+v, %v", state, err)
			}
			b := pause.New(client, namespace, slog.New(slog.DiscardHandler))
			run(t, b)
			if why, on := b.On(); on != tt.on {
				t.Errorf("watched: %t, %s", on, why)
			}
		})
	}
}

// TestAFormerPauseIsEnded: it is ended by a resume, and by a ConfigMap of the present name.
func TestAFormerPauseIsEnded(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace, client := cluster.Namespace(t), cluster.Client()
	maps := client.CoreV1().ConfigMaps(namespace)
	former := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: pause.FormerName}, Data: map[string]string{pause.FormerKey: "on"}}
	if _, err := maps.Create(t.Context(), former, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := pause.New(client, namespace, slog.New(slog.DiscardHandler))
	run(t, b)
	if why, on := b.On(); !on || !strings.Contains(why, pause.FormerName) {
		t.Errorf("an upgrade ended a pause: %t, %q", on, why)
	}
	for _, on := range []bool{false, true, false} {
		if err := pause.Set(t.Context(), client, namespace, pause.State{On: on, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, 2*time.Minute, func() bool { _, is := b.On(); return is == on })
		m, err := maps.Get(t.Context(), pause.FormerName, metav1.GetOptions{})
		if err != nil || (m.Data[pause.FormerKey] != pause.Off) != on {
			t.Errorf("the former ConfigMap says %v, %v", m.Data, err)
		}
	}
}
