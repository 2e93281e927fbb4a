package ec2fake

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// The example credentials of AWS's public documentation.
const (
	exampleKey    = "AKIDEXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

// The example of AWS's public description of Signature Version 4 ("Create a
// signed AWS API request": ListUsers of IAM) with the signature it gives.
func TestSignatureOfThePublicExample(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", http.NoBody)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	r.Header.Set("X-Amz-Date", "20150830T123600Z")
	a := authorization{day: "20150830", region: "us-east-1", service: "iam", signed: []string{"content-type", "host", "x-amz-date"}}
	const want = "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
	if got := signature(r, nil, a, exampleSecret); got != want {
		t.Errorf("signature is %s, want %s", got, want)
	}
}

// Requests as the Query API's public reference describes them, written and
// signed manually: neither the SDK nor the fake's own code made the signatures.
func TestHandwrittenRequests(t *testing.T) {
	const reboot = "Action=RebootInstances&InstanceId.1=i-1234567890abcdef0&Version=2016-11-15"
	const good = "bb962950cc5010159ac44e01d00a28f84547760f55403b33affcdb628d30e0d0"
	for _, tt := range []struct {
		name, body, signature, date string
		status                      int
		want                        string
	}{
		{"a reboot", reboot, good, "20150830T123600Z", 200, "<return>true</return>"},
		{"another body under its signature", strings.Replace(reboot, "def0", "def1", 1), good, "20150830T123600Z", 403, "SignatureDoesNotMatch"},
		{"another time under its signature", reboot, good, "20150830T123601Z", 403, "SignatureDoesNotMatch"},
		{"too old", reboot, good, "20150830T122959Z", 400, "RequestExpired"},
		{"unknown action", strings.Replace(reboot, "Reboot", "Stop", 1), "b398f63247e29aa873937e1d43b079ac459462e0ae20ffc1b0be68085f147672", "20150830T123600Z", 400, "InvalidAction"},
		{"unknown version", strings.Replace(reboot, "2016-11-15", "2006-06-26", 1), "ede112ad09a49a3eb94ff4aa7a5265aabf2d01487950e3eb103f8a4cf2b43840", "20150830T123600Z", 400, "NoSuchVersion"},
		{"unknown parameter", strings.Replace(reboot, "&Version", "&Colour=red&Version", 1), "44a4199a9db2ee11b4ac1f302cfb3c6ab6e9cee3038e33891a71ebec41c7c464", "20150830T123600Z", 400, "UnknownParameter"},
		{"unknown instance", strings.Replace(reboot, "i-1234567890abcdef0", "i-0000000000000dead", 1), "6d0aea41b710246d485842984986fc22d483b5b64551b0bb59cc79038a569b80", "20150830T123600Z", 400, "InvalidInstanceID.NotFound"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Account{AccessKey: exampleKey, Secret: exampleSecret}, "i-1234567890abcdef0", "i-1234567890abcdef1")
			c.Now = func() time.Time { return time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC) }
			status, answer := send(t, c, fmt.Sprintf("POST / HTTP/1.1\r\n"+
				"Host: ec2.us-west-2.amazonaws.com\r\n"+
				"Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"+
				"X-Amz-Date: %s\r\n"+
				"Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-west-2/ec2/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=%s\r\n"+
				"Content-Length: %d\r\n\r\n%s", tt.date, tt.signature, len(tt.body), tt.body))
			if status != tt.status || !strings.Contains(answer, tt.want) {
				t.Errorf("answer %d %s, want %d with %s", status, answer, tt.status, tt.want)
			}
			done := 0
			if tt.status == 200 {
				done = 1
			}
			recorded := c.Requests("")
			if len(recorded) != 1 || recorded[0].Done != (done == 1) || c.Instance("i-1234567890abcdef0").Reboots != done {
				t.Errorf("books are %+v after %d reboots", recorded, c.Instance("i-1234567890abcdef0").Reboots)
			}
		})
	}
}

// send writes a request to the socket as it is.
func send(t *testing.T, c *Cloud, text string) (int, string) {
	t.Helper()
	server := httptest.NewServer(c)
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}
