// Package names lists the public names of the suite: metrics and their labels, reasons, keys of labels and
// annotations, conditions and phases, flags, keys of configurations, variables, values of the chart, commands,
// alerts, objects, custom resources, ports, programs, images and gRPC methods. Manifests, dashboards, alerts and scripts of
// users have them. A test compares the list with names.txt, so that no name changes unseen. The fields of custom
// resources are in docs/reference/crds.md, those on the wire in the protobuf files.
package names

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nvidia/nvsentinel/tests/metrics"
	"github.com/nvidia/nvsentinel/tests/programs"
	"github.com/nvidia/nvsentinel/tests/reasons"
)

// list is a set of lines, each a kind, a tab and a name.
type list map[string]bool

func (l list) add(kind string, names ...string) {
	for _, name := range names {
		l[kind+"\t"+name] = true
	}
}

// Read lists the public names below the root of the repository: lines of a kind, a tab and a name, sorted.
func Read(root string) ([]string, error) {
	all := list{}
	for _, part := range []func(root string, all list) error{
		metricNames, reasonNames, sourceNames, configurationNames, valueNames, objectNames, definitionNames, programNames,
	} {
		if err := part(root, all); err != nil {
			return nil, fmt.Errorf("listing the public names: %w", err)
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

func metricNames(root string, all list) error {
	served, err := metrics.Programs(root)
	for _, ofProgram := range served {
		for _, m := range ofProgram {
			all.add("metric", m.Name)
			for _, label := range m.Labels {
				all.add("metric label", m.Name+"{"+label+"}")
			}
		}
	}
	return err
}

func reasonNames(root string, all list) error {
	read, err := reasons.Read(root)
	for _, r := range read {
		all.add("reason", r.Value)
	}
	return err
}

func programNames(root string, all list) error {
	for _, p := range programs.Services(root, "").Programs {
		all.add("program", p.Name)
		all.add("program", p.Links...)
	}
	return nil
}
