package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/node-drainer/internal/config"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

func TestTheServiceGetsReadyAndStops(t *testing.T) {
	kubeconfig := localcluster.ForTest(t, localcluster.Options{}).AdminKubeconfig()
	for _, args := range [][]string{nil, {"--leader-elect", "--leader-elect-namespace", "default"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			service := daemon.RunForTest(t, name, config.Default(), build, append(args,
				"--kubeconfig", kubeconfig, "--single-host", "--store", "sqlite://"+filepath.Join(t.TempDir(), "r.db"))...)
			await(t, "http://"+service.Address+"/readyz", "drains")
			await(t, "http://"+service.Address+"/metrics", "node_drainer_nodes_in_work 0")
			if code := service.Stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// await polls url until it answers 200 with want in it, at most two minutes.
func await(t *testing.T, url, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var last string
	for {
		code, body, err := get(ctx, url)
		if err == nil && code == http.StatusOK && strings.Contains(body, want) {
			return
		}
		if ctx.Err() == nil {
			last = fmt.Sprintf("%d %s %v", code, body, err)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %s, want %q", url, last, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}
