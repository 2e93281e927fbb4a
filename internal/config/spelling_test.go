package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
)

type spelt struct {
	Block

	Host  string           `toml:"singleHost" old:"single-host,single_host"`
	Table part             `toml:"failureHandling" old:"failure_handling"`
	List  []part           `toml:"ruleSets" old:"rule-sets"`
	Named map[string]*part `toml:"named"`
}

// Block is embedded.
type Block struct {
	Dry bool `toml:"dryRun" old:"dry-run"`
}

type part struct {
	Most time.Duration `toml:"maxLag" old:"max_lag"`
	At   time.Time     `toml:"resetAt"`
	Text string        `toml:"text"`
}

// TestOldSpellings are taken as the present ones, and told of once each.
func TestOldSpellings(t *testing.T) {
	at := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name, file, text string
		want             spelt
		old              []string
		fail             string
	}{
		{
			name: "present ones", text: "singleHost = 'a'\ndryRun = true\n[failureHandling]\nmaxLag = '1s'\n",
			want: spelt{Block: Block{true}, Host: "a", Table: part{Most: time.Second}},
		},
		{
			name: "old ones",
			text: "single_host = 'a'\ndry-run = true\n[failure_handling]\nmax_lag = '1s'\nresetAt = 2024-01-02T03:04:05Z\n" +
				"[[rule-sets]]\nmax_lag = '2s'\n[[rule-sets]]\nmax_lag = '3s'\n[named.x]\nmax_lag = '4s'\n",
			want: spelt{
				Block: Block{true}, Host: "a", Table: part{Most: time.Second, At: at},
				List: []part{{Most: 2 * time.Second}, {Most: 3 * time.Second}}, Named: map[string]*part{"x": {Most: 4 * time.Second}},
			},
			old: []string{
				"dry-run is an old spelling of dryRun", "single_host is an old spelling of singleHost",
				"failure_handling is an old spelling of failureHandling", "failureHandling.max_lag is an old spelling of maxLag",
				"rule-sets is an old spelling of ruleSets", "ruleSets.max_lag is an old spelling of maxLag", "named.x.max_lag is an old spelling of maxLag",
			},
		},
		{
			name: "in YAML", file: "c.yaml", text: "single-host: a\nrule-sets: [{max_lag: 2s}]\n",
			want: spelt{Host: "a", List: []part{{Most: 2 * time.Second}}},
			old:  []string{"single-host is an old spelling of singleHost", "rule-sets is an old spelling of ruleSets", "ruleSets.max_lag is an old spelling of maxLag"},
		},
		{name: "both", text: "single-host = 'a'\nsinglehost = 'a'\n", fail: `keys "single-host" and "singleHost" are one key in two spellings: give the second alone`},
		{name: "two old ones", text: "single-host = 'a'\nsingle_host = 'a'\n", fail: `keys "single_host" and "singleHost" are one key in two spellings`},
		{name: "both, below", text: "[[rule-sets]]\nmax_lag = '1s'\nmaxLag = '1s'\n", fail: `keys "ruleSets.max_lag" and "maxLag" are one key`},
		{name: "unknown beside it", text: "dry-run = true\nnmae = 1\n", fail: `unknown key "nmae"`},
		{name: "a wrong type", text: "dry-run = 'x'\n", fail: `(key "dryRun"): incompatible types`},
		{name: "no table", text: "failure_handling = 1\n", fail: `type mismatch for config_test.part: expected table but found int64`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.file == "" {
				tt.file = "c.toml"
			}
			path := filepath.Join(t.TempDir(), tt.file)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var got spelt
			set, err := config.Bind(flag.NewFlagSet("svc", flag.ContinueOnError), &got)
			if err != nil {
				t.Fatal(err)
			}
			err = set.Load(path, os.LookupEnv)
			if tt.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fail) {
					t.Errorf("error %v, want %q in it", err, tt.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.old, set.Old()); diff != "" {
				t.Errorf("old spellings (-want +got):\n%s", diff)
			}
		})
	}
}
