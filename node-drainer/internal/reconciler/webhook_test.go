package reconciler_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admission "k8s.io/api/admission/v1"
	webhooks "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/eviction"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/node-drainer/internal/reconciler"
)

// TestAnEvictionWebhookThatHangsOrFails: the pods it guards are named with what
// it does, other pods and other nodes go on, and the drain ends once it is well.
func TestAnEvictionWebhookThatHangsOrFails(t *testing.T) {
	for name, sick := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // without it the end of the call is not heard
			<-r.Context().Done()
		},
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, eviction.NamespaceRule{Name: "test-*", Mode: eviction.Immediate})
			s.restart(func(c *reconciler.Config) { c.Policy.Backoff, c.Policy.MaxBackoff = time.Second, time.Second })
			free := s.cluster.Namespace(t)
			s.pod(localcluster.PodSpec{Name: "web"})
			s.pod(localcluster.PodSpec{Name: "free", Namespace: free})
			s.waitCached(2)
			heal := s.webhook(sick)
			s.fault("r1", "r1")
			s.mark("r1")
			s.eventually(func() error {
				got, want := s.eviction("r1"), "1 of 2 pods left: "+s.ns+"/web (eviction failed: "
				if !strings.HasPrefix(got.Message, want) || !strings.Contains(got.Message, "webhook") {
					return fmt.Errorf("progress %q, want %q and the webhook", got.Message, want)
				}
				return nil
			})
			if gone, _ := s.leaving(free, "free"); !gone {
				t.Error("a pod that the webhook does not guard was left")
			}
			first := s.node
			s.node += "-b"
			if _, err := s.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: s.node}); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.cluster.DeleteNode(context.Background(), first+"-b") }()
			s.pod(localcluster.PodSpec{Name: "other", Namespace: free})
			s.fault("r2", "r2")
			s.mark("r2")
			s.wantEviction("r2", record.EvictionSucceeded)
			s.node = first
			heal()
			s.wantEviction("r1", record.EvictionSucceeded)
		})
	}
}

// webhook guards the evictions of the stage's namespace, and waits until it
// does; heal makes it allow everything.
func (s *stage) webhook(sick http.HandlerFunc) (heal func()) {
	s.t.Helper()
	var well atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !well.Load() {
			sick(w, r)
			return
		}
		allow(w, r)
	}))
	s.t.Cleanup(server.Close)
	url, fails, scope, none, limit := server.URL, webhooks.Fail, webhooks.AllScopes, webhooks.SideEffectClassNone, int32(1)
	hook := &webhooks.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.node},
		Webhooks: []webhooks.ValidatingWebhook{{
			Name: "evictions.example.com", FailurePolicy: &fails, SideEffects: &none, TimeoutSeconds: &limit,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig: webhooks.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []webhooks.RuleWithOperations{{
				Operations: []webhooks.OperationType{webhooks.Create},
				Rule:       webhooks.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}, Scope: &scope},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.ns}},
		}},
	}
	hooks := s.cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(s.t.Context(), hook, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := hooks.Delete(context.Background(), hook.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	nobody := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "nobody", UID: types.UID("x")}}
	s.eventually(func() error {
		if err := reconciler.Evict(s.t.Context(), s.cluster.Client(), nobody, 0); !apierrors.IsInternalError(err) {
			return fmt.Errorf("the webhook is not asked: %w", err)
		}
		return nil
	})
	return func() { well.Store(true) }
}

func allow(w http.ResponseWriter, r *http.Request) {
	var review admission.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	review.Response = &admission.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}
