package reconciler_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/decision"
	"github.com/nvidia/nvsentinel/internal/retry"
)

var errAway = errors.New("the API server is away")

// answer is a response that the API server did not give.
func answer(r *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
}

// TestAPIServerAway: whatever request of a repair's life fails, the reconciler reports it
// and asks again; nothing untrue is recorded, and the lifecycle ends as one
// without an outage, with one object.
func TestAPIServerAway(t *testing.T) {
	for name, hit := range map[string]func(*http.Request) bool{
		"read the node": func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/nodes/")
		},
		"list the pods": func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/pods") },
		"mark the node": func(r *http.Request) bool { return r.Method == http.MethodPatch },
		"create the object": func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/rebootnodes")
		},
		"everything": func(*http.Request) bool { return true },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			b := newBench(t)
			b.fault("r1", record.ActionRestartVM)
			whole := b.Cluster
			b.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
				if hit(r) {
					return nil, errAway
				}
				return nil, nil
			})
			for range 3 {
				err := b.Handle(t.Context(), b.node)
				if err == nil {
					t.Fatal("Handle = nil while the API server is away")
				}
				if _, why, parked := retry.AsPark(err); parked {
					t.Fatalf("parked (%s) while the API server is away, want another try", why)
				}
			}
			if rem := b.record("r1").Status.Remediation; rem != nil && (rem.Outcome != "" || rem.Attempts[0].UID != "") {
				t.Errorf("stamped %+v while the API server was away", rem)
			}
			if n := len(b.objects()); n != 0 {
				t.Errorf("%d objects, want none", n)
			}
			b.Cluster = whole
			b.parks(decision.WaitObject)
			b.finish(b.onlyObject(), "NodeReady", "True", "Succeeded", "boot-2")
			b.parks(decision.WaitRecovery)
			b.shows("r1", "true Succeeded(Succeeded) [1 Healthy uid=true sent=true] label=remediation-succeeded")
		})
	}
}

// TestAnswerLost: the API server creates the object and the answer is lost; the
// object is found again by its name and not created twice.
func TestAnswerLost(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	whole := b.Cluster
	direct := b.cluster.Dynamic().Resource(rebootNodes)
	creations := 0
	b.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/rebootnodes") {
			return nil, nil
		}
		creations++
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		obj := decode(t, body)
		if _, err := direct.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		return nil, errAway
	})
	if err := b.Handle(t.Context(), b.node); err == nil {
		t.Fatal("Handle = nil though the answer was lost")
	}
	b.Cluster = whole
	b.parks(decision.WaitObject)
	b.shows("r1", "null () [1 Unknown uid=true sent=true] label=remediating")
	if o := b.onlyObject(); creations != 1 || string(o.GetUID()) != b.record("r1").Status.Remediation.Attempts[0].UID {
		t.Errorf("%d creations, object %s", creations, o.GetUID())
	}
}

// TestReadsGoToTheAPIServer: no read of the reconciler may be answered from a cache,
// neither one of its own nor the API server's.
func TestReadsGoToTheAPIServer(t *testing.T) {
	b := newBench(t)
	reads := 0
	b.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			reads++
			if v := r.URL.Query().Get("resourceVersion"); v != "" {
				t.Errorf("%s asks for resourceVersion %s or newer, which a cache may answer", r.URL.Path, v)
			}
		}
		return nil, nil
	})
	b.fault("r1", record.ActionRestartVM)
	b.parks(decision.WaitObject)
	for range 2 {
		before := reads
		b.parks(decision.WaitObject)
		if reads-before < 2 {
			t.Errorf("%d reads in a pass, want at least the Node and the object", reads-before)
		}
	}
}

// TestStaleNode: a Node that is read as it was before its release can not be
// marked, and no object is created for it.
func TestStaleNode(t *testing.T) {
	b := newBench(t)
	b.fault("r1", record.ActionRestartVM)
	stale := b.raw("/api/v1/nodes/" + b.node)
	b.patchNode(`{"spec":{"unschedulable":null},"metadata":{"annotations":{"dgxc.nvidia.com/nvsentinel-session":null}}}`)
	b.Cluster = b.client(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/nodes/"+b.node) {
			return answer(r, http.StatusOK, stale), nil
		}
		return nil, nil
	})
	err := b.Handle(t.Context(), b.node)
	if _, _, waits := retry.AsWait(err); !waits {
		t.Errorf("Handle = %v, want another look after the conflict", err)
	}
	if n := len(b.objects()); n != 0 {
		t.Errorf("%d objects for a released node, want none", n)
	}
}
