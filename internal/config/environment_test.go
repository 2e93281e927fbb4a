package config_test

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
)

type database struct {
	Host   string        `toml:"host" flag:"host" env:"DB_HOST,OLD_HOST" usage:"a host"`
	Port   int           `toml:"port" env:"DB_PORT"`
	Secret config.Secret `toml:"-" env:"DB_SECRET"`
}

// TestEnvironment: variables stand between the file and the flags.
func TestEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		want database
		fail string
	}{
		{name: "none", want: database{Host: "file", Port: 1}},
		{name: "over the file", env: map[string]string{"DB_HOST": "env", "DB_PORT": "2"}, want: database{Host: "env", Port: 2}},
		{name: "under the flags", env: map[string]string{"DB_HOST": "env"}, args: []string{"--host=flag"}, want: database{Host: "flag", Port: 1}},
		{name: "the second name", env: map[string]string{"OLD_HOST": "old"}, want: database{Host: "old", Port: 1}},
		{name: "the first name first", env: map[string]string{"DB_HOST": "new", "OLD_HOST": "old"}, want: database{Host: "new", Port: 1}},
		{name: "empty is not set", env: map[string]string{"DB_HOST": "", "OLD_HOST": ""}, want: database{Host: "file", Port: 1}},
		{name: "a reference", env: map[string]string{"DB_SECRET": "${env:IT}", "IT": "it"}, want: database{Host: "file", Port: 1, Secret: config.NewSecret("it")}},
		{name: "a reference to nothing", env: map[string]string{"DB_SECRET": "${env:IT}"}, fail: "db.DB_SECRET: resolving ${env:IT}: the environment has no IT: set it, for example with secretKeyRef"},
		{name: "a reference that is no secret", env: map[string]string{"DB_HOST": "${env:IT}", "IT": "it"}, fail: "environment variable DB_HOST: ${env:IT}" + isForSecrets},
		{name: "not a number", env: map[string]string{"DB_PORT": "many"}, fail: `environment variable DB_PORT: "many" is not a whole number of 64 bits`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "c.toml")
			if err := os.WriteFile(file, []byte("[db]\nhost = 'file'\nport = 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var cfg struct {
				DB database `toml:"db"`
			}
			flags := flag.NewFlagSet("svc", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			set, err := config.Bind(flags, &cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := flags.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			err = set.Load(file, func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok })
			if tt.fail != "" {
				if err == nil || err.Error() != tt.fail {
					t.Errorf("error %v, want %s", err, tt.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, cfg.DB); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}
