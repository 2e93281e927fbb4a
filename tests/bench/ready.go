package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// startsAtMost is how often a service may be started until it is ready.
const startsAtMost = 3

// ready waits until every service reports that it is ready. A service that ends again and again
// is an error.
func (s *stage) ready(ctx context.Context) error {
	for _, service := range s.fleet.Services() {
		err := until(ctx, s.o.Sizes.Limit, service.Name+" to be ready", func() (bool, error) {
			if service.Starts() > startsAtMost {
				return true, nil
			}
			return answersReady(ctx, loggedAddress(service.Log, "probe and metrics server started"))
		})
		if n := service.Starts(); n > startsAtMost {
			err = fmt.Errorf("%s ended %d times", service.Name, n-1)
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, service.Tail(8))
		}
	}
	return nil
}

// answersReady asks a service; one without an address has none yet.
func answersReady(ctx context.Context, address string) (bool, error) {
	if address == "" {
		return false, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return false, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	return answer.StatusCode == http.StatusOK, answer.Body.Close()
}

// loggedAddress is the address that a log names last in a line with this message; empty if it has
// none.
func loggedAddress(log, message string) (address string) {
	text, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		var output struct{ Msg, Address string }
		if json.Unmarshal(line, &output) == nil && output.Msg == message {
			address = output.Address
		}
	}
	return address
}

// metricOf is the value of the first series that begins with a text, of the service that
// serves its metrics at an address; 0 if there is none.
func metricOf(ctx context.Context, address, series string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("reading the metrics at %s: %w", address, err)
	}
	return parseMetric(string(text), series)
}

func parseMetric(text, series string) (float64, error) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, series) {
			fields := strings.Fields(line)
			return strconv.ParseFloat(fields[len(fields)-1], 64)
		}
	}
	return 0, nil
}
