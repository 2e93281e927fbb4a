package scale

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// values are the chart's own, as far as they are measured against or run with.
type values map[string]any

// workload is the chart's values of one workload.
type workload struct {
	Policies  string `json:"policies"`
	Resources struct {
		Limits struct {
			Memory resource.Quantity `json:"memory"`
		} `json:"limits"`
	} `json:"resources"`
}

func (s *site) chart() string { return filepath.Join(s.o.Root, "distros/helm/nvsentinel") }

// values reads the chart's.
func (s *site) values() (values, error) {
	text, err := os.ReadFile(filepath.Join(s.chart(), "values.yaml"))
	if err != nil {
		return nil, err
	}
	var v values
	if err := yaml.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("reading the chart's values: %w", err)
	}
	return v, nil
}

// of returns the values of a workload by its name: node-drainer is nodeDrainer in the values.
func (v values) of(name string) (workload, error) {
	words := strings.Split(name, "-")
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	var w workload
	text, err := yaml.Marshal(v[strings.Join(words, "")])
	if err == nil {
		err = yaml.Unmarshal(text, &w)
	}
	if err != nil {
		return w, fmt.Errorf("reading the chart's values of %s: %w", name, err)
	}
	if w.Resources.Limits.Memory.IsZero() {
		return w, fmt.Errorf("the chart bounds no memory of %s", name)
	}
	return w, nil
}

// policies are those of the object monitor in the chart, and ours.
func (s *site) policies() (string, error) {
	v, err := s.values()
	if err != nil {
		return "", err
	}
	monitor, err := v.of("kubernetes-object-monitor")
	if err != nil {
		return "", err
	}
	count, err := os.ReadFile(filepath.Join(s.chart(), "manifests/gpu-count-mismatch.toml"))
	return monitor.Policies + "\n" + string(count) + morePolicies, err
}
