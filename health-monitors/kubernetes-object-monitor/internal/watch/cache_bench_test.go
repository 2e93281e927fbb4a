package watch

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// containers is a policy on Pods that looks into their containers.
const containers = `
[[policies]]
name = "Containers"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Pod"
[policies.predicate]
expression = "resource.status.phase == 'Running' && resource.spec.containers.exists(c, c.name == 'broken')"
[policies.nodeAssociation]
expression = "resource.spec.nodeName"
[policies.healthEvent]
componentClass = "Node"
message = "m"
recommendedAction = "NONE"
`

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// chartAnd are the chart's policies and more.
func chartAnd(tb testing.TB, find policy.Finder, more string) *policy.Set {
	tb.Helper()
	text, err := os.ReadFile("../../../../distros/helm/nvsentinel/manifests/kubernetes-object-monitor/deployment.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---") {
		var object struct{ Data map[string]string }
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			tb.Fatal(err)
		}
		if policies := object.Data["policies.toml"]; policies != "" {
			set, err := policy.Parse("policies.toml", policies+more, find)
			if err != nil {
				tb.Fatal(err)
			}
			return set
		}
	}
	tb.Fatal("the manifest has no policies")
	return nil
}

// served is a pod of some 4 KB as the API server sends one that a kubelet runs.
func served(tb testing.TB, number int) []byte {
	tb.Helper()
	text, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		tb.Fatal(err)
	}
	return []byte(strings.NewReplacer("NUMBER", fmt.Sprintf("%05d", number)).Replace(string(text)))
}

// decoded is the pod as a client decodes it.
func decoded(tb testing.TB, number int) *unstructured.Unstructured {
	tb.Helper()
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(served(tb, number)); err != nil {
		tb.Fatal(err)
	}
	return object
}

// heap is what is in use, in bytes.
func heap() float64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc)
}

// BenchmarkKept measures what one pod takes in the store and in the plan of turns.
func BenchmarkKept(b *testing.B) {
	const pods = 10_000
	set := chartAnd(b, nil, containers)
	for b.Loop() {
		before := heap()
		store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
		keep, plan := pack(set, podKind), newTurns(testclock.NewFakeClock(time.Unix(0, 0)), time.Hour)
		for n := range pods {
			x, err := keep(decoded(b, n))
			if err != nil {
				b.Fatal(err)
			}
			if err := store.Add(x); err != nil {
				b.Fatal(err)
			}
			plan.plan(newItem(podKind, x.(*kube.Packed).Namespace, x.(*kube.Packed).Name), time.Unix(0, 0))
		}
		b.ReportMetric((heap()-before)/pods, "B/object")
		plan.queue.ShutDown()
		runtime.KeepAlive(store)
	}
}

// BenchmarkTransform measures what it costs to decode a pod and to take it in.
func BenchmarkTransform(b *testing.B) {
	set := chartAnd(b, nil, containers)
	keep := pack(set, podKind)
	text := served(b, 1)
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	object := decoded(b, 1)
	b.Run("copy and keep", func(b *testing.B) {
		for b.Loop() {
			if _, err := keep(object.DeepCopy()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkEvaluation measures what it costs to find a pod and to evaluate it.
func BenchmarkEvaluation(b *testing.B) {
	set := chartAnd(b, nil, containers)
	keep := pack(set, podKind)
	x, err := keep(decoded(b, 1))
	if err != nil {
		b.Fatal(err)
	}
	kept := kindStore{kind: podKind, store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc), namespaced: true}
	if err := kept.store.Add(x); err != nil {
		b.Fatal(err)
	}
	i := kept.list()[0]
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for b.Loop() {
		object, err := kept.find(i.namespace, i.name)
		if err != nil {
			b.Fatal(err)
		}
		if match, err := set.Of(podKind)[0].Match(object, now, bounded(b.Context())); err != nil || match.Matched {
			b.Fatal(match, err)
		}
	}
}
