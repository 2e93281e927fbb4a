package metrics

import (
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Metric is one metric of a program.
type Metric struct {
	// Name is whole; Type is counter, gauge or histogram.
	Name, Type, Help string
	// Labels are sorted.
	Labels []string
}

// Programs are the metrics of each program that serves some, by its name and sorted by
// theirs. root is the folder of the repository.
func Programs(root string) (map[string][]Metric, error) {
	s, err := read(root)
	if err != nil {
		return nil, err
	}
	out := map[string][]Metric{}
	for _, folder := range slices.Sorted(maps.Keys(s.mains)) {
		p := s.reach(s.mains[folder])
		if p.main == nil || p.several {
			continue // it serves none of its own
		}
		var name string
		err := p.each(bindings{}, func(b bindings) (err error) {
			name, err = p.text(p.main.Args[0], b)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: the name of the program: %w", folder, err)
		}
		list, err := p.metrics()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		list = append(list, out[name]...) // one name may be that of several programs
		slices.SortFunc(list, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
		out[name] = slices.CompactFunc(list, Metric.is)
	}
	return out, nil
}

func (p *program) metrics() ([]Metric, error) {
	found := map[string]Metric{}
	for _, site := range p.sites {
		kind, vector := strings.CutPrefix(strings.TrimSuffix(strings.TrimSuffix(p.fromPrometheus(site.Fun), "Func"), "Vec"), "New")
		if kind = strings.ToLower(kind); !vector || !slices.Contains([]string{"counter", "gauge", "histogram", "summary", "desc"}, kind) {
			continue
		}
		err := p.each(bindings{}, func(b bindings) error {
			m, err := p.metric(kind, site, b)
			if err == nil {
				m.Labels = append(m.Labels, found[m.Name].Labels...) // not all ways add the same
				slices.Sort(m.Labels)
				m.Labels = slices.Compact(m.Labels)
				found[m.Name] = m
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.set.Position(site.Pos()), err)
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Metric) int { return strings.Compare(a.Name, b.Name) }), nil
}

// metric works out one constructor on one way to it.
func (p *program) metric(kind string, site *ast.CallExpr, b bindings) (m Metric, err error) {
	given := map[string]ast.Expr{}
	if kind == "desc" {
		given = map[string]ast.Expr{"Name": site.Args[0], "Help": site.Args[1], "Labels": site.Args[2]}
		if m.Type = p.constants(site); m.Type == "" {
			return m, errors.New("the constants of the folder have no one type")
		}
	} else {
		opts, err := p.literal(site.Args[0], b)
		if err != nil {
			return m, err
		}
		for _, e := range opts.Elts {
			kv := e.(*ast.KeyValueExpr)
			given[kv.Key.(*ast.Ident).Name] = kv.Value
		}
		m.Type = kind
		if strings.HasSuffix(p.fromPrometheus(site.Fun), "Vec") {
			given["Labels"] = site.Args[1]
		}
	}
	if m.Name, err = p.joined([]ast.Expr{given["Namespace"], given["Subsystem"], given["Name"]}, b); err != nil {
		return m, err
	}
	if m.Help, err = p.text(given["Help"], b); err != nil {
		return m, err
	}
	for _, list := range []string{"Labels", "ConstLabels"} {
		labels, err := p.texts(given[list], b)
		if err != nil {
			return m, err
		}
		m.Labels = append(m.Labels, labels...)
	}
	more, err := p.wrapped(site, b)
	m.Labels = append(m.Labels, more...)
	return m, err
}

// constants is the type of the values that are made in the folder of a description;
// empty is none, or more than one.
func (p *program) constants(desc *ast.CallExpr) string {
	folder, kind := filepath.Dir(p.set.Position(desc.Pos()).Filename), ""
	for _, site := range p.sites {
		name := p.fromPrometheus(site.Fun)
		if name != "MustNewConstMetric" && name != "NewConstMetric" || filepath.Dir(p.set.Position(site.Pos()).Filename) != folder {
			continue
		}
		is := strings.ToLower(strings.TrimSuffix(p.fromPrometheus(site.Args[1]), "Value"))
		if kind != "" && kind != is {
			return ""
		}
		kind = is
	}
	return kind
}

// wrapped are the labels that a registerer gives what is registered by it: that of the
// function in which the constructor stands, on one way to it.
func (p *program) wrapped(site *ast.CallExpr, b bindings) ([]string, error) {
	for _, r := range p.registerers {
		if site.Pos() < r.from || site.Pos() > r.to || b[r.object] == nil && len(p.bindingsOf(r.object)) == 0 {
			continue
		}
		is, err := p.lookup(r.object, b)
		if err != nil {
			return nil, err
		}
		if call, ok := is.(*ast.CallExpr); ok && p.fromPrometheus(call.Fun) == "WrapRegistererWith" {
			return p.texts(call.Args[0], b)
		}
	}
	return nil, nil
}
