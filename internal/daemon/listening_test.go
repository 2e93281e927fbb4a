package daemon

import "testing"

// own is a configuration with addresses of its own.
type own struct{ metrics, probes string }

func (o own) Addresses() (metrics, probes string) { return o.metrics, o.probes }

func TestWhereMetricsAndProbesAreServed(t *testing.T) {
	given := options{MetricsAddress: "127.0.0.1:0"}
	usual := defaultOptions(nil)
	for name, c := range map[string]struct {
		options       options
		cfg           any
		first, second string
	}{
		"usual":             {usual, settings{}, ":2112", ""},
		"two of its own":    {usual, own{":8080", ":8081"}, ":8080", ":8081"},
		"one of its own":    {usual, own{":8080", ":8080"}, ":8080", ""},
		"the flag is given": {given, own{":8080", ":8081"}, "127.0.0.1:0", ""},
	} {
		if first, second := addressesOf(c.options, c.cfg); first != c.first || second != c.second {
			t.Errorf("%s: %q and %q", name, first, second)
		}
	}
}

func TestTheLogLevelFromTheEnvironment(t *testing.T) {
	for value, want := range map[string]string{"": "info", "debug": "debug"} {
		got := defaultBasics(func(name string) (string, bool) { return value, name == "LOG_LEVEL" })
		if got.LogLevel != want {
			t.Errorf("LOG_LEVEL=%q gives %q", value, got.LogLevel)
		}
	}
}
