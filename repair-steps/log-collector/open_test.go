package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/config"
)

// uploadServer are what a server keeps: whole requests only.
type uploadServer struct {
	mu       sync.Mutex
	answers  []int // of the first requests; then 200
	requests []*http.Request
	objects  map[string][]byte
}

func (u *uploadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = append(u.requests, r)
	if err != nil {
		return
	}
	if n := len(u.requests); n <= len(u.answers) && u.answers[n-1] != 200 {
		w.WriteHeader(u.answers[n-1])
		fmt.Fprint(w, "<Error><Code>SlowDown</Code></Error>")
		return
	}
	if u.objects == nil {
		u.objects = map[string][]byte{}
	}
	u.objects[r.URL.Path] = body
}

func archive(t *testing.T) (string, []byte) {
	t.Helper()
	path, text := filepath.Join(t.TempDir(), "logs.tar.gz"), bytes.Repeat([]byte("archive\x00"), 100_000)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, text
}

// server speaks TLS; file holds its authority.
func server(t *testing.T, b *uploadServer) (s *httptest.Server, file string) {
	t.Helper()
	s = httptest.NewTLSServer(b)
	t.Cleanup(s.Close)
	file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, file
}

func take(t *testing.T, c StorageConfig, file string) (string, error) {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), c, clock.RealClock{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return d.Take(t.Context(), file)
}

// TestWeb: the same bytes after an answer that leaves hope, with token and authority.
func TestWeb(t *testing.T) {
	file, text := archive(t)
	b := &uploadServer{answers: []int{503, 200}}
	s, ca := server(t, b)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := DefaultStorage()
	c.UploadURL, c.Sending.CAFile, c.Sending.TokenFile = config.NewSecret(s.URL+"/logs/gpu-1/run.tar.gz?sig=hunter2"), ca, config.SecretFile(token)
	where, err := take(t, c, file)
	if err != nil || where != s.URL+"/logs/gpu-1/run.tar.gz" {
		t.Errorf("%q, %v", where, err)
	}
	if len(b.objects) != 1 || !bytes.Equal(b.objects["/logs/gpu-1/run.tar.gz"], text) || len(b.requests) != 2 {
		t.Errorf("%d objects after %d requests", len(b.objects), len(b.requests))
	}
	for _, r := range b.requests {
		if r.Method != http.MethodPut || r.Header.Get("Authorization") != "Bearer hunter2" || r.ContentLength != int64(len(text)) || r.Header.Get("Content-Type") != "application/gzip" {
			t.Errorf("%s %v, %d bytes", r.Method, r.Header, r.ContentLength)
		}
	}
	b.answers = []int{0, 0, 403}
	if _, err := take(t, c, file); err == nil || !strings.Contains(err.Error(), "rejected: HTTP 403") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a refusal: %v", err)
	}
}

// TestBucket: an object of S3, put by the SDK at the endpoint of the environment.
func TestBucket(t *testing.T) {
	file, text := archive(t)
	b := &uploadServer{answers: []int{503, 200}}
	s, ca := server(t, b)
	for key, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "us-west-2", "AWS_ENDPOINT_URL_S3": s.URL,
		"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
	} {
		t.Setenv(key, value)
	}
	c := DefaultStorage()
	c.UploadURL, c.Sending.CAFile = config.NewSecret("s3://My_Bucket/gpu-1/run.tar.gz"), ca // no name of a host: the path names the bucket
	where, err := take(t, c, file)
	if err != nil || where != c.UploadURL.Reveal() {
		t.Fatalf("%q, %v", where, err)
	}
	if len(b.objects) != 1 || !bytes.Equal(b.objects["/My_Bucket/gpu-1/run.tar.gz"], text) || len(b.requests) != 2 {
		t.Errorf("%d objects after %d requests", len(b.objects), len(b.requests))
	}
	if got := b.requests[1].Header.Get("Authorization"); !strings.Contains(got, "Credential=key/") || !strings.Contains(got, "/us-west-2/s3/") {
		t.Errorf("%q", got)
	}
}

// TestFolder: the newest archives are kept, whole, and nobody else's files touched.
func TestFolder(t *testing.T) {
	file, text := archive(t)
	dir := t.TempDir()
	c := DefaultStorage()
	c.KeepDir, c.Keep = dir, 2
	for i, name := range []string{"one", "two", "three", "three"} {
		c.Name = name
		where, err := take(t, c, file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(where); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%s: %d bytes, %v", where, len(got), err)
		}
		at := time.Unix(int64(i), 0)
		if err := os.Chtimes(where, at, at); err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"theirs.tar.gz", prefix + "notes.txt", prefix + "died" + suffix + partial} {
			if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Name = "four"
	if _, err := take(t, c, file); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{prefix + "four.tar.gz", prefix + "notes.txt", prefix + "three.tar.gz", "theirs.tar.gz"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	c.KeepDir = "/nowhere"
	if _, err := take(t, c, file); err == nil {
		t.Error("no such folder, and no error")
	}
}

func TestValidate(t *testing.T) {
	for name, x := range map[string]struct {
		spoil   func(*StorageConfig)
		message string
	}{
		"nowhere": {func(*StorageConfig) {}, "--upload-url"},
		"both": {func(c *StorageConfig) {
			c.UploadURL, c.KeepDir, c.Name = config.NewSecret("https://example.com/x"), "/keep", "x"
		}, "--keep-dir"},
		"a URL":              {func(c *StorageConfig) { c.UploadURL = config.NewSecret("https://example.com/x?sig=y") }, ""},
		"no URL":             {func(c *StorageConfig) { c.UploadURL = config.NewSecret("gopher://example.com/x") }, "--upload-url"},
		"S3":                 {func(c *StorageConfig) { c.UploadURL = config.NewSecret("s3://bucket/a/b.tar.gz") }, ""},
		"S3 without a key":   {func(c *StorageConfig) { c.UploadURL = config.NewSecret("s3://bucket/") }, "--upload-url"},
		"S3 and a token":     {func(c *StorageConfig) { c.UploadURL, c.Sending.TokenFile = config.NewSecret("s3://bucket/a"), "token" }, "--token-file"},
		"S3 without time":    {func(c *StorageConfig) { c.UploadURL, c.Sending.SendTimeout = config.NewSecret("s3://bucket/a"), 0 }, "--send-timeout"},
		"a folder":           {func(c *StorageConfig) { c.KeepDir, c.Name = "/keep", "run-1.collect" }, ""},
		"none kept":          {func(c *StorageConfig) { c.KeepDir, c.Name, c.Keep = "/keep", "x", 0 }, "--max-archives"},
		"too many kept":      {func(c *StorageConfig) { c.KeepDir, c.Name, c.Keep = "/keep", "x", maxKeep+1 }, "--max-archives"},
		"a name that leaves": {func(c *StorageConfig) { c.KeepDir, c.Name = "/keep", "../x" }, "--name"},
		"no name":            {func(c *StorageConfig) { c.KeepDir = "/keep" }, "--name"},
	} {
		c := DefaultStorage()
		x.spoil(&c)
		if err := c.Validate(); (err == nil) != (x.message == "") || err != nil && !strings.Contains(err.Error(), x.message) {
			t.Errorf("%s: %v, want %q", name, err, x.message)
		}
	}
}
