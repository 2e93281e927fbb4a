package nodeclient

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
)

func object(boot string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-7", UID: "uid-7"},
		Spec:       corev1.NodeSpec{ProviderID: "cloud://7"},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: "system-7", BootID: boot}},
	}
}

func open(t *testing.T, path string) *OwnNode {
	t.Helper()
	n, err := OpenOwnNode("gpu-7", path, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSightingOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.json")
	n := open(t, path)
	if n.Identity() != (record.NodeIdentity{}) || n.Object() != nil {
		t.Errorf("before the Node was seen: %+v", n.Identity())
	}
	calls := 0
	n.OnChange(func() { calls++ })
	for _, boot := range []string{"boot-1", "boot-1", "boot-2"} {
		n.see(object(boot))
	}
	if calls != 3 || n.Object() == nil {
		t.Errorf("%d calls for 3 changes, object %v", calls, n.Object())
	}
	n.lose()
	want := record.NodeIdentity{UID: "uid-7", ProviderID: "cloud://7", SystemUUID: "system-7", BootID: "boot-2"}
	if diff := cmp.Diff(want, n.Identity()); diff != "" || n.Object() != nil {
		t.Errorf("after the Node is deleted, object %v, (-want +got):\n%s", n.Object(), diff)
	}
	if diff := cmp.Diff(want, open(t, path).Identity()); diff != "" {
		t.Errorf("in the next process (-want +got):\n%s", diff)
	}
}

func TestUnreadableSightingIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := open(t, path)
	n.see(object("boot-1"))
	if got := open(t, path).Identity().BootID; got != "boot-1" {
		t.Errorf("kept boot %q", got)
	}
}
