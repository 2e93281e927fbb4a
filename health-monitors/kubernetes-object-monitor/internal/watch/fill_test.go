package watch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
)

// filledBy is a cluster of the policies whose API server sends pods and nothing else.
func filledBy(tb testing.TB, set *policy.Set, pods [][]byte) *cluster {
	tb.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, pod := range pods {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", pod)
		}
		fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(podKind, meta.RESTScopeNamespace)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		tb.Fatal(err)
	}
	return &cluster{
		set: set, client: client, mapper: mapper, clock: clock.RealClock{}, log: slog.New(slog.DiscardHandler),
		metrics: NewMetrics(prometheus.NewRegistry(), func() (int, int) { return 0, 0 }), enqueue: func(item) {},
		synced: map[schema.GroupVersionKind]kindStore{}, missing: map[schema.GroupVersionKind]bool{}, trouble: map[schema.GroupVersionKind]trouble{},
	}
}

// BenchmarkFill measures how long it takes to list pods and to keep them.
func BenchmarkFill(b *testing.B) {
	const pods = 10_000
	var sent [][]byte
	for n := range pods {
		sent = append(sent, served(b, n))
	}
	set := chartAnd(b, nil, containers)
	for b.Loop() {
		ctx, stop := context.WithCancel(b.Context())
		c := filledBy(b, set, sent)
		began, before := time.Now(), heap()
		filled := make(chan struct{})
		c.filled = func(schema.GroupVersionKind) { close(filled) }
		go c.open(ctx, podKind)
		<-filled
		b.ReportMetric(float64(time.Since(began).Nanoseconds())/pods, "ns/object")
		b.ReportMetric((heap()-before)/pods, "B/object")
		if n := len(c.list(podKind)); n != pods {
			b.Fatalf("%d pods are kept", n)
		}
		stop()
	}
}
