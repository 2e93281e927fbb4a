package command_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nvidia/nvsentinel/cli/internal/command"
)

func TestConvertConfig(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"c.toml": "rule-sets = []\n", "v.yaml": "fault-quarantine: {replicaCount: 2}\n", "env": "DATASTORE_HOST=h\n", "flags": "--config-path=/c\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--program", "fault-quarantine", at("c.toml")}, command.ExitComplete, "ruleSets = []", ""},
		{[]string{at("v.yaml")}, command.ExitComplete, "replicas: 2", ""},
		{[]string{at("env")}, command.ExitComplete, "--store=postgres://h/", ""},
		{[]string{"--kind", "flags", "--program", "node-drainer", at("flags")}, command.ExitComplete, "--config=/c", ""},
		{[]string{at("c.toml")}, command.ExitFailed, "", "--program is empty"},
		{[]string{"--kind", "json", at("env")}, command.ExitFailed, "", `--kind "json" is not toml, values, environment or flags`},
		{[]string{at("absent.yaml")}, command.ExitFailed, "", "absent.yaml"},
		{nil, command.ExitUsage, "", "convert-config <file>"},
	} {
		run(t, command.Program{}, append([]string{"convert-config"}, tt.args...)...).expect(t, tt.code, tt.out, tt.errs)
	}
}
