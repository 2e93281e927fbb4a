package chart

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"sigs.k8s.io/yaml"
)

// samples bound what one evaluation may look at: a day of a series, several times.
const samples = 1_000_000

// TestAlertsFire: over the series of testdata/alerts.yaml each alert's expression finds
// something where it should, and nothing where it should not.
func TestAlertsFire(t *testing.T) {
	text, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ Fires, Quiet []string }{}
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	all := alerts(t)
	for name, alert := range all {
		if len(cases[name].Fires) == 0 || len(cases[name].Quiet) == 0 {
			t.Errorf("testdata/alerts.yaml does not have %s fire and be quiet", name)
		}
		for _, series := range cases[name].Fires {
			if !finds(t, alert.Expr, series) {
				t.Errorf("%s finds nothing in\n%s", name, series)
			}
		}
		for _, series := range cases[name].Quiet {
			if finds(t, alert.Expr, series) {
				t.Errorf("%s finds something in\n%s", name, series)
			}
		}
	}
	for name := range cases {
		if _, there := all[name]; !there {
			t.Errorf("testdata/alerts.yaml has %s, which is no alert", name)
		}
	}
}

// finds reports whether an expression has a result at the end of 25 hours of series.
func finds(t *testing.T, expr, series string) bool {
	t.Helper()
	stored := memory{}
	for line := range strings.Lines(strings.TrimSpace(series)) {
		name, values, err := parser.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var all []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				all = append(all, sample{(time.Duration(i) * time.Minute).Milliseconds(), v.Value})
			}
		}
		if len(values) != 1501 {
			t.Fatalf("%s: %d minutes, want 1501", line, len(values))
		}
		stored = append(stored, storage.NewListSeries(name, all))
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: samples, Timeout: time.Minute})
	defer engine.Close()
	query, err := engine.NewInstantQuery(t.Context(), stored, nil, expr, time.Unix(0, 0).Add(25*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return len(result) > 0
}

// sample is a value at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// memory are series that can be queried.
type memory []storage.Series

// Querier implements storage.Queryable.
func (m memory) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &selected{at: -1}
		for _, series := range m {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(series.Labels().Get(m.Name)) }) {
				found.series = append(found.series, series)
			}
		}
		return found
	}}, nil
}

// selected goes through the series that a selector has found.
type selected struct {
	series []storage.Series
	at     int
}

func (s *selected) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *selected) At() storage.Series                { return s.series[s.at] }
func (s *selected) Err() error                        { return nil }
func (s *selected) Warnings() annotations.Annotations { return nil }
