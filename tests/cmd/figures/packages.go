package main

import (
	"path"
	"slices"
	"strings"
)

// machineryFolders are the folders of packages that exist for tests, for the demo or to
// generate files; "/..." takes all folders below too. Of a tree that has another place for
// one of them, that package counts as product. No product package imports one, but for
// internal/crashpoint, which does nothing outside of tests.
var machineryFolders = []string{
	// Whole trees: tests, tools of the build, examples of the documentation.
	"tests/...", "hack/...", "examples/...",
	// Conformance suites and their databases.
	"api/csp/plugintest", "csp-plugins/internal/cloudtest", "store-client/storetest", "store-client/pgtest", "store-client/mongotest",
	"store-client/internal/sqltest",
	// Simulators and fakes.
	"cli/internal/forward/forwardtest", "csp-plugins/internal/ec2fake", "csp-plugins/internal/redfishfake", "health-monitors/gpu-health-monitor/dcgmsim",
	"health-monitors/internal/journaltest", "health-monitors/internal/mutate", "internal/cutproxy", "internal/report/reporttest", "platform-connectors/internal/gateway/gatewaytest",
	// What runs programs, clusters and many nodes for tests.
	"csp-plugins/internal/pythonenv", "internal/controlplane", "internal/crashpoint", "internal/freeport",
	"internal/gobuild", "internal/kmsgtest", "internal/localcluster", "internal/testkit/...", "platform-connectors/internal/fleet",
	// Generators.
	"health-monitors/syslog-health-monitor/sxid/gen", "health-monitors/xid/gen",
}

// isMachinery reports whether a folder's packages exist for tests, the demo or generation. A
// folder named testdata holds such packages wherever it lies.
func isMachinery(folder string) bool {
	return slices.ContainsFunc(machineryFolders, func(entry string) bool { return covers(entry, folder) }) ||
		slices.Contains(strings.Split(folder, "/"), "testdata")
}

// covers reports whether an entry of machineryFolders is about a folder.
func covers(entry, folder string) bool {
	tree, below := strings.CutSuffix(entry, "/...")
	return folder == tree || below && strings.HasPrefix(folder, tree+"/")
}

// kindOf is what a Go file is for.
func kindOf(name string, isGenerated bool) kind {
	switch {
	case strings.HasSuffix(name, "_test.go"):
		return test
	case isGenerated:
		return generated
	case isMachinery(path.Dir(name)):
		return machinery
	}
	return product
}
