package kubernetesobjectmonitor

import (
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/daemon"
)

var _ daemon.Listening = Config{}

func TestTheDefaultsAreThoseOfTheADR(t *testing.T) {
	if err := defaultConfig.Validate(); err != nil {
		t.Error(err)
	}
	metrics, probes := defaultConfig.Addresses()
	if defaultConfig.Resync != 5*time.Minute || defaultConfig.Workers != 10 || metrics != ":8080" || probes != ":8081" ||
		defaultConfig.Policies != "/etc/nvsentinel/config/policies.toml" {
		t.Errorf("%+v", defaultConfig)
	}
}

func TestEveryProblemIsNamed(t *testing.T) {
	bad := defaultConfig
	bad.Policies, bad.State, bad.Socket, bad.Resync, bad.Workers, bad.Strategy = "", "", "", 0, 0, "STORE_ONLY"
	err := bad.Validate()
	for _, flag := range []string{"--policy-config-path", "--state-config-map", "--platform-connector-socket", "--resync-period", "--max-concurrent-reconciles", "--processingStrategy"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not in %v", flag, err)
		}
	}
}
