package snapshot

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/nvidia/nvsentinel/cli/timeline"
)

// TestAnUnreadableCheckHidesNoOther, for the whole cluster and for one node.
func TestAnUnreadableCheckHidesNoOther(t *testing.T) {
	check := func(name, spec, status string) string {
		return `{"apiVersion":"remediation.medik8s.io/v1alpha1","kind":"NodeHealthCheck","metadata":{"name":"` + name + `"},"spec":` + spec + `,"status":` + status + `}`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"remediation.medik8s.io/v1alpha1","kind":"NodeHealthCheckList","metadata":{},"items":[` + strings.Join([]string{
			check("bad", `{"selector":{"matchLabels":{"pool":"a"}}}`, `{"unhealthyNodes":[{"name":"n","remediations":[{"started":"2026-01-02t03:04:05z"}]}]}`),
			check("good", `{"selector":{"matchLabels":{"pool":"a"}},"minHealthy":3000000000}`, `{"phase":"Enabled","reason":"The check is enabled"}`),
			check("other", `{"selector":{"matchLabels":{"pool":"b"}}}`, `{"phase":"Paused"}`),
		}, ",") + `]}`))
	}))
	defer server.Close()
	cluster, err := Connect(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	phases := func(all []timeline.Check, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, c := range all {
			got[c.Name] = c.Phase
		}
		text, _ := json.Marshal(got)
		return string(text)
	}
	if got, want := phases(checks(t.Context(), cluster, every)), `{"bad":"Unreadable","good":"Enabled","other":"Paused"}`; got != want {
		t.Errorf("all: %s, want %s", got, want)
	}
	of := ofNodeChecks("n", &timeline.Node{Labels: map[string]string{"pool": "a"}})
	if got, want := phases(checks(t.Context(), cluster, of)), `{"bad":"Unreadable","good":"Enabled"}`; got != want {
		t.Errorf("of a node: %s, want %s", got, want)
	}
}
