package main

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// output is the output of a monitor.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write keeps it.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is all of it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// countLogLines counts the lines with a text in the output of the monitor since its start.
func (n *node) countLogLines(what string) (lines int) {
	for line := range strings.Lines(n.out.String()) {
		if strings.Contains(line, what) {
			lines++
		}
	}
	return lines
}

var address = regexp.MustCompile(`probe and metrics server started.*"?address"?[:=]"?(127\.0\.0\.1:\d+)`)

// metric is the value of a series of the monitor; empty where there is none.
func (n *node) metric(series string) string {
	n.t.Helper()
	at := address.FindStringSubmatch(n.out.String())
	if at == nil {
		return ""
	}
	request, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, fmt.Sprintf("http://%s/metrics", at[1]), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		n.t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			return value
		}
	}
	return ""
}
