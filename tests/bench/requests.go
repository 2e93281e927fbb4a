package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// counts are numbers by what is counted.
type counts map[string]float64

// since is what came after before.
func (c counts) since(before counts) counts {
	out := counts{}
	for key, n := range c {
		if n > before[key] {
			out[key] = n - before[key]
		}
	}
	return out
}

// sum is that of all whose key holds a text.
func (c counts) sum(text string) (sum float64) {
	for key, n := range c {
		if strings.Contains(key, text) {
			sum += n
		}
	}
	return sum
}

// each lists the largest as text, per one of n, down to one of 20.
func (c counts) each(n int) string {
	keys := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Or(cmp.Compare(c[b], c[a]), cmp.Compare(a, b)) })
	var out []string
	for _, key := range keys {
		if per := c[key] / float64(n); per >= 0.05 {
			out = append(out, fmt.Sprintf("%s %.2f", key, per))
		}
	}
	return strings.Join(out, ", ")
}

// conflict ends the key of requests that lost a race.
const conflict = " 409"

var (
	seriesLine = regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)$`)
	labelPair  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// traffic is what the API server counted since its start: requests by verb, resource and,
// unless all went well, code, without watches, which count when they end; and the events it
// sent to watchers, by resource. Leases, which come by themselves, are in neither.
type traffic struct{ requests, watched counts }

// readTraffic asks the API server for its metrics.
func (s *stage) readTraffic(ctx context.Context) (traffic, error) {
	body, err := s.fleet.Cluster.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return traffic{}, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return parseTraffic(string(body))
}

func parseTraffic(text string) (traffic, error) {
	t := traffic{counts{}, counts{}}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "apiserver_request_total{") && !strings.HasPrefix(line, "apiserver_watch_events_total{") {
			continue
		}
		m := seriesLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			return t, fmt.Errorf("reading the API server's metrics: %q is no line of one", line)
		}
		n, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return t, fmt.Errorf("reading the API server's metrics: %w", err)
		}
		labels := map[string]string{}
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			labels[pair[1]] = pair[2]
		}
		switch {
		case labels["resource"] == "" || labels["resource"] == "leases" || labels["verb"] == "WATCH":
		case m[1] == "apiserver_watch_events_total":
			t.watched[labels["resource"]] += n
		default:
			t.requests[requestKey(labels)] += n
		}
	}
	return t, nil
}

// requestKey is "GET nodes", "PATCH nodes/status", "PATCH nodes 409".
func requestKey(labels map[string]string) string {
	key := labels["verb"] + " " + labels["resource"]
	if sub := labels["subresource"]; sub != "" {
		key += "/" + sub
	}
	code := labels["code"]
	if code == "422" && labels["verb"] == "PATCH" {
		code = "409" // a test of a JSON patch did not hold: as good a conflict
	}
	if !strings.HasPrefix(code, "2") {
		key += " " + code
	}
	return key
}
