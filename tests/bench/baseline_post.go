package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// posts are ready requests: n of them, with bodies in turn.
type posts struct {
	url, contentType string
	bodies           [][]byte
	n                int
}

// postBaseline is the least that sending events costs: ready bodies go to the
// receiver in requests that run at the same time, and nothing is read or stored.
func postBaseline(ctx context.Context, p posts, atATime int) (time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atATime, MaxConnsPerHost: atATime}}
	defer client.CloseIdleConnections()
	began := time.Now()
	err := atOnce(p.n, atATime, func(i int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(p.bodies[i%len(p.bodies)]))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", p.contentType)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("the receiver answers %s", resp.Status)
		}
		return nil
	})
	return time.Since(began), err
}
