package brake_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/brake"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

// TestBrake on a real API server: on until it was read, then as the ConfigMap
// says; whatever it says but "off" is on.
func TestBrake(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := cluster.Namespace(t)
	maps := cluster.Client().CoreV1().ConfigMaps(namespace)
	b := brake.New(cluster.Client(), namespace, slog.New(slog.DiscardHandler))
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
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: brake.Name}, Data: map[string]string{brake.Key: "onn", brake.ReasonKey: "wrong firmware"}}
	object, err := maps.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(true)
	if why, _ := b.On(); !strings.Contains(why, "wrong firmware") {
		t.Errorf("why: %q", why)
	}
	object.Data[brake.Key] = brake.Off
	if object, err = maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(false)
	delete(object.Data, brake.Key)
	if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(true)
	if err := maps.Delete(t.Context(), brake.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(false)
	<-changed
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, on := (*brake.Brake)(nil).On(); on {
		t.Error("no brake is on")
	}
}
