// Runs programs as torchrun would start them: several processes with its variables. PyTorch is not needed.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/process.hpp"

namespace trainhost::test {

/// A TCP port that no process of this machine uses now.
inline int unused_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET, a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  ::bind(s, reinterpret_cast<const sockaddr*>(&a), sizeof a);
  ::getsockname(s, reinterpret_cast<sockaddr*>(&a), &size);
  ::close(s);
  return ntohs(a.sin_port);
}

/// Options of run_program() that start it `ranks` times on this machine and return the largest exit code.
/// Rank 0 serves the store, as under launchers other than torchrun. `absent`: a rank that is not started; -1:
/// none.
inline RunOptions under_torchrun(int ranks, int absent = -1) {
  RunOptions o;
  o.launcher = {
      "sh", "-c",
      "r=0; pids=; while [ $r -lt $WORLD_SIZE ]; do\n"
      "  [ $r = $ABSENT ] || { RANK=$r LOCAL_RANK=$r \"$@\" & pids=\"$pids $!\"; }; r=$((r+1)); done\n"
      "code=0; for p in $pids; do wait $p || { c=$?; [ $c -le $code ] || code=$c; }; done; exit $code",
      "torchrun"};
  o.environment = {{"WORLD_SIZE", std::to_string(ranks)},
                   {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                   {"ABSENT", std::to_string(absent)},
                   {"MASTER_ADDR", "127.0.0.1"},
                   {"MASTER_PORT", std::to_string(unused_port())}};
  return o;
}

}  // namespace trainhost::test
