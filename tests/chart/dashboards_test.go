package chart

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// dashboard is what matters of Grafana's model.
type dashboard struct {
	UID, Title, Description string
	Templating              struct{ List []struct{ Name, Type string } }
	Panels                  []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
}

// dashboards are those of a rendering, by the names of their files.
func dashboards(t *testing.T, with ...string) map[string]dashboard {
	t.Helper()
	out := map[string]dashboard{}
	for name, files := range texts(t, rendered(t, append([]string{file("store")}, with...)...)) {
		if !strings.HasPrefix(name, "nvsentinel-dashboard-") {
			continue
		}
		for path, text := range files {
			var d dashboard
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			out[path] = d
		}
	}
	return out
}

const dashboardsOn = "--set=dashboards.enabled=true"

// TestDashboards: each file of the chart becomes a ConfigMap that can be found, with its own
// identity; each panel has a description and a unit, and queries the chosen data source for
// series that the services have.
func TestDashboards(t *testing.T) {
	if len(dashboards(t)) > 0 {
		t.Error("they are there by default")
	}
	all := dashboards(t, dashboardsOn)
	files, err := filepath.Glob(filepath.Join(chartDir, "dashboards/*.json"))
	if err != nil || len(files) != len(all) || len(files) < 2 {
		t.Errorf("%d files make %d dashboards (%v)", len(files), len(all), err)
	}
	page, uids := readMetricsPage(t), map[string]bool{}
	for name, d := range all {
		if uids[d.UID] || d.UID == "" || d.Title == "" || d.Description == "" {
			t.Errorf("%s: uid %q, title %q, description %q", name, d.UID, d.Title, d.Description)
		}
		uids[d.UID] = true
		for _, variable := range []struct{ Name, Type string }{{"datasource", "datasource"}, {"namespace", "query"}} {
			if !slices.Contains(d.Templating.List, variable) {
				t.Errorf("%s has no variable %s", name, variable.Name)
			}
		}
		ids := map[int]bool{}
		for i, p := range d.Panels {
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: panel %q has the id %d, as another one or none", name, p.Title, p.ID)
			}
			ids[p.ID] = true
			for _, other := range d.Panels[:i] {
				if p.covers(other) {
					t.Errorf("%s: panel %q lies over %q", name, p.Title, other.Title)
				}
			}
			for _, problem := range p.problems(page) {
				t.Errorf("%s: panel %q: %s", name, p.Title, problem)
			}
		}
	}
}

// covers reports whether two panels share a place, or one is beyond the 24 columns.
func (p panel) covers(other panel) bool {
	a, b := p.GridPos, other.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H || a.X+a.W > 24
}

// problems are what a panel lacks, and what is wrong with its queries. Grafana puts the
// values of its variables into them.
func (p panel) problems(page metricsPage) (out []string) {
	if p.Type == "row" {
		return nil
	}
	if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
		out = append(out, "it has no title, description, unit or query")
	}
	if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" {
		out = append(out, "its data source is not the variable's")
	}
	refs, variables := map[string]bool{}, strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*")
	for _, target := range p.Targets {
		if refs[target.RefID] || target.LegendFormat == "" {
			out = append(out, "query "+target.RefID+" is there twice or has no legend")
		}
		refs[target.RefID] = true
		if strings.Count(target.Expr, "{") != strings.Count(target.Expr, `{namespace=~"$namespace"`) {
			out = append(out, "not every selector of "+target.Expr+" is of the chosen namespace")
		}
		out = append(out, page.problems(variables.Replace(target.Expr))...)
	}
	return out
}

// TestDashboardValues: the values define the place and the content of the ConfigMaps.
func TestDashboardValues(t *testing.T) {
	const with = "dashboards.namespace=monitoring,dashboards.labels.own=x,dashboards.annotations.grafana_folder=f"
	for _, name := range []string{"nvsentinel-dashboard-overview", "nvsentinel-dashboard-pipeline"} {
		o := find(rendered(t, file("store"), dashboardsOn+","+with), "ConfigMap", name)
		if o == nil || o.GetNamespace() != "monitoring" || o.GetLabels()["grafana_dashboard"] != "1" || o.GetLabels()["own"] != "x" || o.GetAnnotations()["grafana_folder"] != "f" {
			t.Errorf("%s is %v", name, o)
		}
	}
}
