package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	texttemplate "text/template"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// prometheusRule is what the chart uses of the Prometheus operator's kind of that name.
type prometheusRule struct {
	APIVersion, Kind string
	Metadata         map[string]any
	Spec             struct {
		Groups []struct {
			Name  string
			Rules []alertingRule
		}
	}
}

type alertingRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts are those of a rendering, by name.
func alerts(t *testing.T, with ...string) map[string]alertingRule {
	t.Helper()
	object := find(rendered(t, append([]string{file("store"), "--set=prometheusRule.enabled=true"}, with...)...), "PrometheusRule", "nvsentinel")
	if object == nil {
		return nil
	}
	out := map[string]alertingRule{}
	for _, group := range as[prometheusRule](t, object).Spec.Groups {
		for _, rule := range group.Rules {
			if _, twice := out[rule.Alert]; twice {
				t.Errorf("%s is there twice", rule.Alert)
			}
			out[rule.Alert] = rule
		}
	}
	return out
}

// TestAlerts: each alert queries series and labels that the services have, and its text uses
// only labels that its expression keeps.
func TestAlerts(t *testing.T) {
	if find(rendered(t, file("store")), "PrometheusRule", "nvsentinel") != nil {
		t.Error("they are there by default")
	}
	page, of := readMetricsPage(t), regexp.MustCompile(`\$labels\.(\w+)`)
	all := alerts(t)
	if len(all) < 30 {
		t.Errorf("only %d alerts", len(all))
	}
	formats := texttemplate.FuncMap{"humanizeDuration": fmt.Sprint, "humanizePercentage": fmt.Sprint}
	for name, alert := range all {
		for _, problem := range page.problems(alert.Expr) {
			t.Errorf("%s: %s", name, problem)
		}
		if !strings.HasPrefix(name, "NVSentinel") || strings.Contains(alert.Expr, "$") {
			t.Errorf("%s asks %s", name, alert.Expr)
		}
		for _, key := range []string{"summary", "description"} {
			text := alert.Annotations[key]
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: its %s is %q, which is no sentence", name, key, text)
			}
			if _, err := texttemplate.New(name).Funcs(formats).Parse("{{$labels := .}}{{$value := .}}" + text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, label := range of.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(grouped(t, alert.Expr), label[1]) {
					t.Errorf("%s: its %s names %s, which its expression does not leave", name, key, label[0])
				}
			}
		}
	}
}

// TestRunbooks: docs/reference/alerts.md has a row of each alert, and of no other, with its
// severity, duration and threshold; each alert names its row.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	output := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| <a id=\"(\\w+)\"></a>`(\\w+)` \\| (\\w+) \\| (\\S+) \\| (\\S+) \\| .+ \\| .+ \\|$")
	for _, cells := range row.FindAllStringSubmatch(string(text), -1) {
		if cells[1] != strings.ToLower(cells[2]) {
			t.Errorf("the row of %s has the anchor %s", cells[2], cells[1])
		}
		output[cells[2]] = strings.Join(cells[3:], ", ")
	}
	want := map[string]string{}
	for name, alert := range alerts(t) {
		threshold := "-"
		if value, has := thresholds(t)[name]; has {
			threshold = fmt.Sprint(value)
		}
		want[name] = alert.Labels["severity"] + ", " + alert.For + ", " + threshold
		if runbook := "https://github.com/nvidia/nvsentinel/blob/main/docs/reference/alerts.md#" + strings.ToLower(name); alert.Annotations["runbook_url"] != runbook {
			t.Errorf("%s has the runbook %s, want %s", name, alert.Annotations["runbook_url"], runbook)
		}
	}
	if diff := cmp.Diff(want, output); diff != "" {
		t.Errorf("docs/reference/alerts.md (-alerts +page):\n%s", diff)
	}
}

// thresholds are those of alerts.yaml, by the names of the alerts that have one.
func thresholds(t *testing.T) map[string]float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Alert     string
		Threshold *float64
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, alert := range all {
		if alert.Threshold != nil {
			out[alert.Alert] = *alert.Threshold
		}
	}
	return out
}

// TestAlertValues: the values define the object's place and content; each alert can be replaced
// or removed, and the others stay as they are.
func TestAlertValues(t *testing.T) {
	const with = "--set=prometheusRule.enabled=true,prometheusRule.namespace=monitoring,prometheusRule.labels.release=p,prometheusRule.annotations.a=b"
	object := find(rendered(t, file("store"), with), "PrometheusRule", "nvsentinel")
	if object.GetNamespace() != "monitoring" || object.GetLabels()["release"] != "p" || object.GetAnnotations()["a"] != "b" {
		t.Errorf("it is %v", object.Object["metadata"])
	}
	want := alerts(t)
	const spool, pause = "NVSentinelWALNearlyFull", "NVSentinelPaused"
	changed := want[spool]
	changed.Expr, changed.For, changed.Labels = strings.Replace(changed.Expr, "> 0.8", "> 0", 1), "1h", map[string]string{"severity": "page", "team": "gpu"}
	delete(want, pause)
	for _, alert := range want {
		alert.Labels["team"] = "gpu"
	}
	want[spool] = changed
	at := "prometheusRule.rules." + spool
	got := alerts(t, "--set=prometheusRule.rules."+pause+".enabled=false,prometheusRule.ruleLabels.team=gpu,"+at+".threshold=0,"+at+".for=1h,"+at+".severity=page")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
	var off []string
	for _, name := range slices.Sorted(maps.Keys(alerts(t))) {
		off = append(off, "--set=prometheusRule.rules."+name+".enabled=false")
	}
	if none := alerts(t, off...); none != nil {
		t.Errorf("with none enabled there are %v", none)
	}
}

// TestAlertsThatCannotBe are refused, by the name of the value.
func TestAlertsThatCannotBe(t *testing.T) {
	for value, want := range map[string]string{
		"NVSentinelPause.enabled=false":      "prometheusRule.rules.NVSentinelPause: unknown alert, use one of NVSentinelBMCUnreachable, ",
		"NVSentinelPaused.threshold=1":       "prometheusRule.rules.NVSentinelPaused.threshold: this alert has no threshold",
		"NVSentinelFeedLag.thresold=1":       "'thresold' not allowed",
		"NVSentinelFeedLag.threshold=many":   "/prometheusRule/rules/NVSentinelFeedLag/threshold",
		"NVSentinelFeedLag.for=ten minutes ": "/prometheusRule/rules/NVSentinelFeedLag/for",
	} {
		if _, err := template(t, file("store"), "--set=prometheusRule.rules."+value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}
