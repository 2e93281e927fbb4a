package names

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const chart = "distros/helm/nvsentinel"

// quoted is a name in a page.
var quoted = regexp.MustCompile("`([^`]+)`")

// configurationNames reads the pages of the programs' configurations, which are made of the code: keys, flags and
// variables, of shared blocks under the name of the block.
func configurationNames(root string, all list) error {
	pages, err := filepath.Glob(filepath.Join(root, "docs/reference/configuration/*.md"))
	if err != nil || len(pages) == 0 {
		return errors.Join(errors.New("no page of docs/reference/configuration"), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		of := strings.TrimSuffix(filepath.Base(page), ".md")
		for line := range strings.Lines(string(text)) {
			if title, ok := strings.CutPrefix(line, "## "); ok && of != "README" && filepath.Base(page) == "shared.md" {
				of = "[" + strings.TrimSpace(title) + "]"
			}
			row(of, line, all)
		}
	}
	return nil
}

// row lists the names of a line: of a row of the table, or of a block that the program has.
func row(of, line string, all list) {
	cells := strings.Split(line, "|")
	switch {
	case strings.HasPrefix(line, "- [") && strings.Contains(line, "](shared.md#"):
		keys, notes, _ := strings.Cut(line, ";")
		for _, m := range quoted.FindAllStringSubmatch(keys, -1) {
			all.add("key", of+" "+m[1])
		}
		if _, begin, ok := strings.Cut(notes, "the flags begin with `"); ok {
			begin, _, _ = strings.Cut(begin, "`")
			all.add("flag", of+" "+begin+"*")
		}
	case len(cells) == 6 && of == "README": // the flags of every program
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			all.add("flag", m[1])
		}
	case len(cells) > 8:
		for i, kind := range []string{"key", "flag", "variable"} {
			for name := range strings.SplitSeq(strings.NewReplacer("`", "", " ", "").Replace(cells[i+1]), ",") {
				switch {
				case name == "" || name == kind || strings.HasPrefix(name, "---"):
				case kind == "variable":
					all.add(kind, name)
				default:
					all.add(kind, of+" "+name)
				}
			}
		}
	}
}

// valueNames are the values of the chart.
func valueNames(root string, all list) error {
	text, err := os.ReadFile(filepath.Join(root, chart, "values.yaml"))
	if err != nil {
		return err
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return err
	}
	nested("", values, all)
	return nil
}

func nested(at string, values map[string]any, all list) {
	for name, value := range values {
		below, ok := value.(map[string]any)
		if all.add("Helm value", at+name); ok {
			nested(at+name+".", below, all)
		}
	}
}

var alert = regexp.MustCompile(`(?m)^- alert: (\w+)`)

// port is one of a container, in a template.
var port = regexp.MustCompile(`"?name"?:? "?(\w+)"?,? "?containerPort"?:? ([0-9]+)`)

// objectNames are the objects that the chart makes in each cluster, those that its accounts may change by their
// names, the ports of its Pods, and its alerts.
func objectNames(root string, all list) error {
	objects, err := documents(filepath.Join(root, chart, "manifests"), "*.yaml", "*/*.yaml")
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" && !strings.HasSuffix(o.GetKind(), "Binding") { // a binding has the name of what it binds
			all.add("object", o.GetKind()+" "+o.GetName())
		}
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for _, r := range rules {
			rule, _ := r.(map[string]any)
			resources, _, _ := unstructured.NestedStringSlice(rule, "resources")
			names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
			for _, name := range names {
				all.add("object", strings.Join(resources, ",")+" "+name)
			}
		}
	}
	templates, bad := filepath.Glob(filepath.Join(root, chart, "templates", "*.*"))
	for _, file := range templates {
		text, unread := os.ReadFile(file)
		bad = errors.Join(bad, unread)
		for _, m := range port.FindAllStringSubmatch(string(text), -1) {
			all.add("port", m[1]+" "+m[2])
		}
	}
	alerts, unread := os.ReadFile(filepath.Join(root, chart, "alerts.yaml"))
	for _, m := range alert.FindAllSubmatch(alerts, -1) {
		all.add("alert", string(m[1]))
	}
	return errors.Join(err, bad, unread)
}

// definitionNames are the custom resources.
func definitionNames(root string, all list) error {
	definitions, err := documents(filepath.Join(root, chart), "crds/*.yaml", "manifests/crds/*.yaml")
	for _, d := range definitions {
		spec, _, _ := unstructured.NestedMap(d.Object, "spec")
		names, _, _ := unstructured.NestedMap(spec, "names")
		versions, _, _ := unstructured.NestedSlice(spec, "versions")
		for _, v := range versions {
			version, _ := v.(map[string]any)
			all.add("custom resource", fmt.Sprintf("%v.%v.%v", names["kind"], version["name"], spec["group"]))
		}
		short, _, _ := unstructured.NestedStringSlice(names, "shortNames")
		all.add("resource of kubectl", append(short, fmt.Sprint(names["plural"]), fmt.Sprint(names["singular"]))...)
	}
	return err
}

// documents are the objects in files below a folder.
func documents(folder string, patterns ...string) (out []*unstructured.Unstructured, err error) {
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(files) == 0 {
			return nil, errors.Join(fmt.Errorf("no file %s in %s", pattern, folder), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
				var o unstructured.Unstructured
				if err := yaml.Unmarshal(document, &o.Object); err != nil {
					return nil, fmt.Errorf("reading %s: %w", file, err)
				}
				if o.GetKind() != "" {
					out = append(out, &o)
				}
			}
		}
	}
	return slices.Clip(out), nil
}
