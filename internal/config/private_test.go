package config_test

import (
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/config"
)

func TestATokenGoesOverNoNetworkInClearText(t *testing.T) {
	for origin, ok := range map[string]bool{
		"": true, "https://h": true, "https://10.0.0.1:8443": true, "http://127.0.0.1:1": true, "http://[::1]:1": true, "http://localhost": true,
		"http://h": false, "http://10.0.0.1": false, "http://localhost.example.com": false, "http://127.0.0.1.example.com": false, "http://127.0.0.1@h": false,
		"ftp://localhost": false, "h": false, "https://": false, "%": false,
	} {
		if err := config.CheckOrigin("endpoint (--endpoint)", origin); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "endpoint (--endpoint)") {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
