package pause_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/pause"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// TestSwitch on a real API server: the emergency stop is on until it is read, then as the ConfigMap
// states; every value except "off" is on.
func TestSwitch(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := cluster.Namespace(t)
	maps := cluster.Client().CoreV1().ConfigMaps(namespace)
	b := pause.New(cluster.Client(), namespace, slog.New(slog.DiscardHandler))
	if why, on := b.On(); !on || !strings.Contains(why, "not read yet") {
		t.Errorf("before it is read: %v, %q", on, why)
	}
	changed := make(chan struct{}, 16)
	b.OnChange(func() { changed <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- b.Run(ctx) }()
	await := func(want bool) {
		t.Helper()
		testkit.Until(t, 2*time.Minute, func() bool { _, on := b.On(); return on == want })
	}
	await(false)
	<-changed // who waited for the first reading goes on, also without any ConfigMap
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: pause.Name}, Data: map[string]string{pause.Key: "onn", pause.ReasonKey: "wrong firmware"}}
	object, err := maps.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(true)
	if why, _ := b.On(); !strings.Contains(why, "wrong firmware") {
		t.Errorf("why: %q", why)
	}
	object.Data[pause.Key] = pause.Off
	if object, err = maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(false)
	delete(object.Data, pause.Key)
	if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(true)
	if err := maps.Delete(t.Context(), pause.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(false)
	<-changed
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, on := (*pause.Switch)(nil).On(); on {
		t.Error("no brake is on")
	}
}
