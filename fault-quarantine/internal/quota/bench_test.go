package quota_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/fault-quarantine/budget"
	"github.com/nvidia/nvsentinel/fault-quarantine/internal/quota"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// BenchmarkStorm takes a place for one node after the other, with the default limits'
// kinds, over more and more nodes; half of them get none. The time of one place must not
// grow with the nodes.
func BenchmarkStorm(b *testing.B) {
	for _, nodes := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			rate, atOnce, zone := 50, 10, nodes
			rules := quota.Rules{Counted: labels.SelectorFromSet(labels.Set{"gpu": "true"}), Limits: []budget.Limit{
				{Name: quota.Breaker, Percentage: &rate, Duration: 5 * time.Minute}, {Name: "at-once", Percentage: &atOnce},
				{Name: "zone", Label: corev1.LabelTopologyZone, Nodes: &zone},
			}}
			for b.Loop() {
				b.StopTimer()
				s := &shelf{changed: func(string) {}}
				for i := range nodes {
					s.add(fmt.Sprint("n", i), "")
				}
				q := quota.New(s, func() (bool, string) { return true, "" }, testkit.NewClock(), rules)
				q.Open(nil, nil)
				b.StartTimer()
				for i := range nodes / 5 {
					if _, _, err := q.Take(budget.Candidate{Name: fmt.Sprint("n", i), Order: int64(i)}, "s"); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(nodes/5), "µs/place")
		})
	}
}
