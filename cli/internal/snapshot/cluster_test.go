package snapshot_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/cli/internal/snapshot"
)

// TestWritesStayHere: whatever the clients are asked to write, no request
// leaves this process.
func TestWritesStayHere(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.Method) }))
	defer server.Close()
	c, err := snapshot.Connect(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	nodes := c.Clientset.CoreV1().Nodes()
	writes := map[string]func() error{
		"create": func() error { _, err := nodes.Create(t.Context(), &corev1.Node{}, metav1.CreateOptions{}); return err },
		"update": func() error {
			_, err := nodes.Update(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.UpdateOptions{})
			return err
		},
		"patch": func() error {
			_, err := nodes.Patch(t.Context(), "n", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"delete": func() error { return nodes.Delete(t.Context(), "n", metav1.DeleteOptions{}) },
	}
	for name, write := range writes {
		if err := write(); err == nil || !strings.Contains(err.Error(), "this program is read-only") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(asked) != 0 {
		t.Errorf("the server was asked to %v", asked)
	}
}
