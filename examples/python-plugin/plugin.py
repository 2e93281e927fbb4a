"""An example of a provider plugin: it reboots machines through the HTTP API of
a rack controller. The controller remembers the ids of the requests it took, so
the plugin needs no memory of its own.

The modules csp_plugin_pb2 and csp_plugin_pb2_grpc are made from the contract:

    python -m grpc_tools.protoc -I janitor/protos/v1 --python_out=. \
        --grpc_python_out=. csp_plugin.proto

Over a network it speaks TLS and admits the janitor alone; on a Unix socket or a
loopback address it may do without.
"""

import argparse
import hashlib
import json
import pathlib
import signal
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent import futures

import grpc
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

import csp_plugin_pb2 as pb
import csp_plugin_pb2_grpc as service

NAME = pb.DESCRIPTOR.services_by_name["CSPPluginService"].full_name


class Rack(service.CSPPluginServiceServicer):
    def __init__(self, url):
        self.url = url

    def SendRebootSignal(self, request, context):
        answer = self.ask(context, "POST", request.node_name, request.idempotency_key)
        return pb.SendRebootSignalResponse(request_id=answer["request"])

    def IsNodeReady(self, request, context):
        return pb.IsNodeReadyResponse(is_ready=self.ask(context, "GET", request.node_name)["on"])

    def SendTerminateSignal(self, request, context):
        answer = self.ask(context, "DELETE", request.node_name, request.idempotency_key)
        return pb.SendTerminateSignalResponse(request_id=answer["request"])

    def ask(self, context, method, machine, key=""):
        """Calls the rack controller; what goes wrong is the answer to the janitor."""
        if not machine:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "node_name is empty")
        path = "/machines/" + urllib.parse.quote(machine, safe="") + "?" + urllib.parse.urlencode({"id": key})
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, method=method), timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 429:
                context.abort_with_status(later(code_pb2.RESOURCE_EXHAUSTED, "the rack controller is busy", 10))
            # The controller's own words alone are for good. A status may be that of a proxy,
            # or of an address that is wrong, and says nothing of the machine.
            word = self.word(error)
            if word == "no-such-machine":
                context.abort(grpc.StatusCode.NOT_FOUND, f"the rack has no machine {machine!r}")
            if word == "id-of-another-machine":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"id {key!r} was used for another machine")
            context.abort(grpc.StatusCode.UNKNOWN, f"the rack controller answered {error.code}")
        except OSError as error:  # it may have been done
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    @staticmethod
    def word(error):
        """The controller's word for an error; None of an answer that is not the controller's."""
        try:
            return json.load(error).get("error")
        except (ValueError, AttributeError, OSError):
            return None


def later(code, message, seconds):
    """Nothing was done; come back after that."""
    status = status_pb2.Status(code=code, message=message)
    status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds)))
    return rpc_status.to_status(status)


class Callers(grpc.ServerInterceptor):
    """Admits one service account, by the API server's word (TokenReview)."""

    KEEP = 30  # seconds for which an admitted token is not reviewed again

    def __init__(self, options):
        self.caller, self.audience = options.caller, options.audience
        self.url = options.api_server + "/apis/authentication.k8s.io/v1/tokenreviews"
        self.own = pathlib.Path(options.account_dir, "token")
        self.tls = ssl.create_default_context(cafile=pathlib.Path(options.account_dir, "ca.crt"))
        self.admitted = {}

    def intercept_service(self, continuation, details):
        handler = continuation(details)
        if handler is None or details.method.startswith("/grpc.health.v1.Health/"):
            return handler

        def checked(request, context):
            self.check(context)
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(checked, handler.request_deserializer, handler.response_serializer)

    def check(self, context):
        tokens = [value for key, value in context.invocation_metadata() if key == "authorization"]
        if len(tokens) != 1 or not tokens[0].startswith("Bearer "):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the call has no bearer token")
        token = tokens[0][len("Bearer "):]
        key, now = hashlib.sha256(token.encode()).digest(), time.monotonic()
        if self.admitted.get(key, 0) > now:
            return
        try:
            status = self.review(token)
        except (OSError, ValueError) as error:  # nothing was done
            context.abort_with_status(later(code_pb2.UNAVAILABLE, f"the token cannot be verified: {error}", 5))
        if not status.get("authenticated") or self.audience not in status.get("audiences", []):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not valid: " + status.get("error", ""))
        name = status.get("user", {}).get("username")
        if name != self.caller:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{name!r} is not an allowed identity")
        self.admitted = {k: until for k, until in self.admitted.items() if until > now}
        self.admitted[key] = now + self.KEEP

    def review(self, token):
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self.audience]},
        }
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + self.own.read_text().strip()}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10, context=self.tls) as answer:
            return json.load(answer)["status"]


def local(address):
    """Whether an address can be called from this host alone."""
    host = address.rpartition(":")[0].strip("[]")
    return address.startswith("unix:") or host in ("localhost", "::1") or host.startswith("127.")


def certificate(options):
    """TLS whose files are read for every connection."""

    def read():
        key, cert = (pathlib.Path(p).read_bytes() for p in (options.tls_key_file, options.tls_cert_file))
        return grpc.ssl_server_certificate_configuration([(key, cert)])

    return grpc.dynamic_ssl_server_credentials(read(), read)


def parse():
    flags = argparse.ArgumentParser()
    flags.add_argument("--listen", default="[::]:9090", help="Address on which the plugin serves the janitor, as host:port or unix:///path.")
    flags.add_argument("--controller", default="http://rack-controller", help="URL of the rack controller.")
    flags.add_argument("--tls-cert-file", default="")
    flags.add_argument("--tls-key-file", default="")
    flags.add_argument(
        "--caller", default="system:serviceaccount:nvsentinel:janitor", help="service account that may call; empty: all"
    )
    flags.add_argument("--audience", default="csp-plugin", help="audience that its token must be meant for")
    flags.add_argument("--api-server", default="https://kubernetes.default.svc")
    flags.add_argument("--account-dir", default="/var/run/secrets/kubernetes.io/serviceaccount")
    options = flags.parse_args()
    if not local(options.listen) and not (options.tls_cert_file and options.caller):
        sys.exit(
            "over a network, --tls-cert-file, --tls-key-file and --caller are required, because every caller can reboot machines"
        )
    return options


def main():
    options = parse()
    callers = [Callers(options)] if options.caller else []
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), interceptors=callers)
    service.add_CSPPluginServiceServicer_to_server(Rack(options.controller), server)
    healthy = health.HealthServicer()
    for name in ("", NAME):
        healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    if options.tls_cert_file:
        server.add_secure_port(options.listen, certificate(options))
    else:
        server.add_insecure_port(options.listen)
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=10))
    server.wait_for_termination()


if __name__ == "__main__":
    main()
