package bench

import (
	"fmt"
	"strings"
	"time"
)

// rows are the figures of one quota.
func (n *noise) rows() []Row {
	name, acked, took := n.quota.name, len(n.acknowledged), n.shouted
	cordon := func(quantileName string, q float64) Row {
		return Row{
			Figure:   fmt.Sprintf("event published to node cordoned, %d nodes beside a noisy one, %s, %s", n.o.Sizes.NoiseNodes, quantileName, name),
			Measured: seconds(quantile(n.loud.waits, q)), Baseline: seconds(quantile(n.idleSpell.waits, q)), Target: Target{Within: 2},
			Note:    fmt.Sprintf("store %s away, through a gateway, %d events/s for %s", distance, n.o.Sizes.NoiseRate, n.o.Sizes.Noise),
			Remarks: fmt.Sprintf("%d times; floor: %d times without", len(n.loud.waits), len(n.idleSpell.waits)),
		}
	}
	row := func(figure string, ours Quantity, seen string, args ...any) Row {
		return Row{Figure: "  " + name + ": " + figure, Measured: ours, Remarks: fmt.Sprintf(seen, args...)}
	}
	busy := row("processor time a second beside it", n.loud.perSecond(), "%s", n.loud.parts())
	busy.Baseline = n.idleSpell.perSecond()
	asked := row("API requests a second beside it", n.loud.requestRate(), "%s", n.loud.requests.each(int(n.loud.took.Seconds())))
	asked.Baseline = n.idleSpell.requestRate()
	return []Row{
		cordon("p50", 0.5), cordon("p99", 0.99),
		row("the noisy node's first fatal fault to its cordon", seconds(n.own), "event %d, which comes when the quota is used up, if there is one", n.firstFatal()),
		row("its events acknowledged", rate(acked, took), "%d; %d refused", acked, n.refused),
		row("its events stored", rate(n.left.stored, took), "%d, all judged; in %.1f MB of rows, %.1f MB is the table with all that updates left, and its indexes",
			n.left.stored, float64(n.left.rows)/1e6, float64(n.left.table)/1e6),
		row("its events counted instead", rate(n.left.missing, took), "%d, each reports the fault of a stored event before it; the gateway counted %d", n.left.missing, n.left.counted),
		row("its last event to the last verdict", seconds(n.evaluatedAfter), "when it fell silent %d were neither stored nor counted and %d not judged", n.unstored, n.unevaluated),
		busy, asked,
	}
}

// perSecond is the processor time that the suite and its control plane used a second.
func (s spell) perSecond() Quantity { return seconds(s.each(s.used.sum())) }

// requestRate is how many requests the API server answered a second.
func (s spell) requestRate() Quantity {
	return Quantity{s.requests.sum("") / s.took.Seconds(), Times, true}
}

func (s spell) each(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.took.Seconds())
}

// parts lists which processes used processor time, down to one hundredth of a processor, and
// what the others used.
func (s spell) parts() string {
	var out []string
	for _, part := range s.used.order() {
		if d := s.each(s.used[part]); d >= tick {
			out = append(out, fmt.Sprintf("%s %s", part, seconds(d)))
		}
	}
	return fmt.Sprintf("%s; others on the machine %s; load %s", strings.Join(out, ", "), seconds(s.each(s.used[otherPart])), s.load)
}
