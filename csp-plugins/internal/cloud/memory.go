package cloud

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/data-models/extra"
)

// Verbs.
const (
	reboot    = "reboot"
	terminate = "terminate"
)

// operationRequest is what the janitor asks for.
type operationRequest struct {
	verb, node, key string
	force           bool
}

// idempotencyRecord is what is known of a key.
type idempotencyRecord struct {
	Verb    string `json:"verb"`
	Node    string `json:"node"`
	Machine string `json:"machine"`
	// BootID is the boot the Node showed before the signal.
	BootID string `json:"bootID,omitempty"`
	// Mark is that of Hardware before the signal.
	Mark      string `json:"mark,omitempty"`
	RequestID string `json:"requestID"`
	// Executed: the cloud took it, as its operation of this name, if it has one.
	Executed  bool   `json:"executed"`
	Operation string `json:"operation,omitempty"`

	stored *corev1.ConfigMap // nil without a key
	extra  *extra.Extra      // what a newer version has written besides
}

// text is the record as it is stored.
func (r idempotencyRecord) text() (string, error) {
	doc, err := json.Marshal(r)
	if err == nil {
		doc, err = r.extra.MergeJSON(doc, 0)
	}
	return string(doc), err
}

// resetSince reports whether the machine was reset since an earlier record was made.
func (r idempotencyRecord) resetSince(earlier idempotencyRecord) bool {
	return r.BootID != earlier.BootID || r.Mark != "" && earlier.Mark != "" && r.Mark != earlier.Mark
}

// same refuses a key that was used for something else.
func (o operationRequest) same(r idempotencyRecord) error {
	if r.Verb != o.verb || r.Node != o.node {
		return status.Errorf(codes.InvalidArgument, "the key was already used to %s node %q", r.Verb, r.Node)
	}
	return nil
}

// Memory keeps one ConfigMap per key in the plugin's own namespace. Its name is
// made from the key, so that two replicas can not both intend it, and its owner
// is the Node, with which it goes.
type Memory struct {
	Client kubernetes.Interface
	// Namespace of the plugin.
	Namespace string
	// Prefix of the names.
	Prefix string
}

// recordKey is where the record stands in its ConfigMap.
const recordKey = "memo.json"

// digest of a key: it ends the name of the ConfigMap, and stands in the request id.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%x", sum[:10])
}

func (m Memory) name(digest string) string { return m.Prefix + "-" + digest }

// recall is what is known of a key; nil is nothing.
func (m Memory) recall(ctx context.Context, key string) (*idempotencyRecord, error) {
	if key == "" {
		return nil, nil
	}
	return m.read(ctx, digest(key))
}

// of is what is known of a request: nothing if it had no key, or if its Node and
// with it the record is gone.
func (m Memory) of(ctx context.Context, r request) (*idempotencyRecord, error) {
	if len(r.token) != len(digest("")) {
		return nil, nil
	}
	return m.read(ctx, r.token)
}

func (m Memory) read(ctx context.Context, digest string) (*idempotencyRecord, error) {
	stored, err := m.Client.CoreV1().ConfigMaps(m.Namespace).Get(ctx, m.name(digest), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, status.Errorf(codes.Aborted, "reading the key: %v", err)
	}
	var known idempotencyRecord
	more, err := extra.Decode([]byte(stored.Data[recordKey]), &known, func(r idempotencyRecord) ([]byte, error) { return json.Marshal(r) })
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "ConfigMap %s/%s is invalid: %v", m.Namespace, stored.Name, err)
	}
	known.stored, known.extra = stored, more
	return &known, nil
}

// intend writes down what is about to be asked of the cloud. A key that somebody
// else wrote down meanwhile is theirs.
func (m Memory) intend(ctx context.Context, key string, wanted idempotencyRecord, node *corev1.Node) (*idempotencyRecord, error) {
	known := &wanted
	token := uuid.NewString()[:8]
	if key != "" {
		token = digest(key)
	}
	known.RequestID = strings.Join([]string{known.Verb, token, known.BootID, known.Machine}, requestSeparator)
	if key == "" {
		return known, nil
	}
	text, err := known.text()
	if err != nil {
		return nil, status.Errorf(codes.Aborted, "saving the key: %v", err)
	}
	known.stored, err = m.Client.CoreV1().ConfigMaps(m.Namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.name(token), Labels: map[string]string{"app.kubernetes.io/managed-by": m.Prefix},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Data: map[string]string{recordKey: text},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, status.Errorf(codes.Aborted, "saving the key: %v", err)
	}
	return known, nil
}

// executed writes down that the cloud took it.
func (m Memory) executed(ctx context.Context, known idempotencyRecord) error {
	if known.stored == nil {
		return nil
	}
	known.Executed = true
	text, err := known.text()
	if err != nil {
		return status.Errorf(codes.Aborted, "saving the execution of the key: %v", err)
	}
	known.stored.Data[recordKey] = text // beside what a newer version keeps there
	if _, err := m.Client.CoreV1().ConfigMaps(m.Namespace).Update(ctx, known.stored, metav1.UpdateOptions{}); err != nil {
		return status.Errorf(codes.Aborted, "saving the execution of the key: %v", err)
	}
	return nil
}

// requestSeparator stands between the parts of a request id. A request id contains what
// it is about, so that it can be asked for when the Node is gone.
const requestSeparator = "|"

// request is what a request id contains.
type request struct{ verb, token, boot, machine string }

// parseRequest reads a request id of this package.
func parseRequest(id string) (request, bool) {
	parts := strings.SplitN(id, requestSeparator, 4)
	if len(parts) != 4 || parts[0] != reboot && parts[0] != terminate || parts[3] == "" {
		return request{}, false
	}
	return request{verb: parts[0], token: parts[1], boot: parts[2], machine: parts[3]}, true
}
