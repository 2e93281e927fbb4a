package triage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/node-health-check/triage"
)

// scene is a check in numbers: nodes that are healthy, that wait for a remediation
// and that have one. It is the naive model that the decisions are held against: the
// words of the specification, one after the other.
type scene struct {
	healthy, waiting, remediated int
	storm                        bool
}

// model is what the specification states for one pass.
func model(s scene, required, threshold int) scene {
	unhealthy := s.waiting + s.remediated
	if s.storm && unhealthy > threshold {
		return s // storm recovery is active: wait for the system to stabilise
	}
	s.storm = false
	if s.healthy < required {
		s.storm = unhealthy > threshold // the budget is used up: nothing begins
		return s
	}
	s.remediated, s.waiting = unhealthy, 0
	s.storm = s.healthy == required && unhealthy > threshold
	return s
}

// decide is the same by the decisions themselves.
func decide(s scene, required, threshold int) (after scene, open bool) {
	limit := int32(threshold)
	census := triage.Census{Observed: s.healthy + s.waiting + s.remediated, Healthy: s.healthy, Required: required}
	storm := triage.Storm{Active: s.storm}.EndIfRecovered(census, &limit)
	open = census.Open() && !storm.Active
	if open {
		s.remediated, s.waiting = s.remediated+s.waiting, 0
	}
	s.storm = storm.Rise(census, &limit, testkit.Start).Active
	return s, open
}

// TestEveryStormUpToTwelveNodes walks, for every number of nodes up to twelve, every
// budget and every threshold, through every state that any faults and recoveries can
// lead to, and holds each pass against the model.
func TestEveryStormUpToTwelveNodes(t *testing.T) {
	states := 0
	for nodes := 1; nodes <= 12; nodes++ {
		for required := 0; required <= nodes; required++ {
			for threshold := 0; threshold <= nodes; threshold++ {
				seen := map[scene]bool{}
				next := []scene{{healthy: nodes}}
				for len(next) > 0 {
					s := next[0]
					next = next[1:]
					if seen[s] {
						continue
					}
					seen[s] = true
					states++
					after := checkPass(t, s, required, threshold)
					// Anything may happen between two passes, to any number of nodes.
					for falls := 0; falls <= after.healthy; falls++ {
						for healed := 0; healed <= after.remediated; healed++ {
							for alone := 0; alone <= after.waiting; alone++ {
								next = append(next, scene{
									after.healthy - falls + healed + alone, after.waiting - alone + falls, after.remediated - healed, after.storm,
								})
							}
						}
					}
				}
			}
		}
	}
	if states < 10_000 {
		t.Errorf("only %d states were walked through: too few to mean anything", states)
	}
}

// checkPass makes one pass and checks what must be true of it.
func checkPass(t *testing.T, s scene, required, threshold int) scene {
	t.Helper()
	where := fmt.Sprintf("required %d, threshold %d, %+v", required, threshold, s)
	after, open := decide(s, required, threshold)
	if want := model(s, required, threshold); after != want {
		t.Fatalf("%s: became %+v, the specification says %+v", where, after, want)
	}
	unhealthy := s.waiting + s.remediated
	again, _ := decide(after, required, threshold)
	switch {
	case !open && after.remediated > s.remediated:
		t.Fatalf("%s: %d began while nothing may", where, after.remediated-s.remediated)
	case (s.storm && unhealthy > threshold || s.healthy < required) && open:
		t.Fatalf("%s: open in a storm or without a budget", where)
	case again != after:
		t.Fatalf("%s: flaps: another pass makes %+v of %+v", where, again, after)
	case unhealthy <= threshold && after.storm:
		t.Fatalf("%s: stuck in a storm that is over", where)
	case unhealthy <= threshold && s.healthy >= required && after.waiting > 0:
		t.Fatalf("%s: %d wait for nothing", where, after.waiting)
	case after.remediated < s.remediated:
		t.Fatalf("%s: a storm took a remediation away", where)
	}
	// Recovery is never held back: once all that are remediated have recovered, what
	// waits begins, or is more than the threshold allows, or than the budget does.
	healed := scene{healthy: after.healthy + after.remediated, waiting: after.waiting, storm: after.storm}
	end, _ := decide(healed, required, threshold)
	if end.waiting > 0 && end.waiting <= threshold && end.healthy >= required {
		t.Fatalf("%s: %d nodes are never helped: %+v", where, end.waiting, end)
	}
	return after
}

// TestPassMatchesTheModel runs real passes through the states of a few nodes: the
// gate opens and closes as in the model, removal included.
func TestPassMatchesTheModel(t *testing.T) {
	const nodes = 4
	passes := 0
	for required := 0; required <= nodes; required++ {
		for threshold := 0; threshold <= nodes; threshold++ {
			seen := map[scene]bool{}
			next := []scene{{healthy: nodes}}
			for len(next) > 0 {
				s := next[0]
				next = next[1:]
				if seen[s] {
					continue
				}
				seen[s] = true
				passes++
				want := model(s, required, threshold)
				if got := realPass(s, required, threshold); got != want {
					t.Fatalf("required %d, threshold %d, %+v: became %+v, want %+v", required, threshold, s, got, want)
				}
				for falls := 0; falls <= want.healthy; falls++ {
					for healed := 0; healed <= want.remediated; healed++ {
						next = append(next, scene{want.healthy - falls + healed, want.waiting + falls, want.remediated - healed, want.storm})
					}
				}
			}
		}
	}
	if passes < 400 {
		t.Errorf("only %d passes", passes)
	}
}

// realPass builds a scene, examines it and counts what became of it.
func realPass(s scene, required, threshold int) scene {
	limit := int32(threshold)
	w := newWorld(required, &limit)
	for i := range s.healthy + s.waiting + s.remediated {
		name := fmt.Sprintf("n-%02d", i)
		n := w.node(name)
		if i >= s.healthy {
			w.fall(name)
		}
		if i >= s.healthy+s.waiting {
			w.act(triage.Act{Do: triage.Begin, Node: name, Of: n, Step: &w.view.Steps[0], LeaseFor: time.Hour})
		}
	}
	if s.storm {
		w.view.Check.Status.StormRecoveryActive = &s.storm
	}
	w.pass()
	after := scene{healthy: int(*w.view.Check.Status.HealthyNodes), storm: *w.view.Check.Status.StormRecoveryActive}
	for _, u := range w.view.Check.Status.UnhealthyNodes {
		if len(u.Remediations) > 0 {
			after.remediated++
		} else {
			after.waiting++
		}
	}
	return after
}
