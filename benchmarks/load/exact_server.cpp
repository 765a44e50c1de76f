// A completion server that is as punctual as the machine and knows when it sent what, at fifty thousand tokens a second.
//
// exact_server PORT_FILE TTFT_S ITL_S: the first token of a request is due TTFT_S after its last byte was read, each
// further one ITL_S after the one before was due; each goes out in a write of its own, and the moment right before
// the write is kept. One thread: a heap of what is due, epoll between. GET /served answers with the truth, for every
// request so far in the order of arrival, as doubles: tokens asked, tokens sent, moment of reading, moments of the
// writes; times are seconds of the host's monotonic clock (Python's time.perf_counter).

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

struct Request {
    int fd, prompt, asked;
    double received;
    std::vector<double> sent;
};

struct Connection {
    std::string buffer;
    Request *request = nullptr;
};

using Due = std::pair<double, Request *>;

static double now_s() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static std::string chunk(const std::string &text) {
    char size[16];
    snprintf(size, sizeof size, "%zx\r\n", text.size());
    return size + text + "\r\n";
}

static void write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n <= 0) return;
        data += n, size -= n;
    }
}

static void write_all(int fd, const std::string &text) { write_all(fd, text.data(), text.size()); }

// The number after `"name":` or `name:`; `otherwise` where there is none.
static long number_after(const std::string &text, const char *name, long otherwise) {
    const char *at = strcasestr(text.c_str(), name);
    return at ? strtol(at + strlen(name), nullptr, 10) : otherwise;
}

// Tokens of a prompt given as ids: `"prompt": [1, 2, 3]`. A text counts as one.
static int prompt_tokens(const std::string &body) {
    size_t start = body.find("\"prompt\"");
    start = start == std::string::npos ? start : body.find_first_not_of(": ", start + 8);
    if (start == std::string::npos || body[start] != '[') return 1;
    size_t end = body.find(']', start);
    return 1 + std::count(body.begin() + start, body.begin() + std::min(end, body.size()), ',');
}

class Server {
  public:
    Server(double ttft_s, double itl_s) : ttft_s_(ttft_s), itl_s_(itl_s), epoll_(epoll_create1(0)) {
        listener_ = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(listener_, reinterpret_cast<sockaddr *>(&address), sizeof address) || listen(listener_, 4096)) {
            perror("exact_server");
            exit(1);
        }
        watch(listener_);
    }

    int port() const {
        sockaddr_in address{};
        socklen_t size = sizeof address;
        getsockname(listener_, reinterpret_cast<sockaddr *>(&address), &size);
        return ntohs(address.sin_port);
    }

    void run() {
        std::vector<epoll_event> events(1024);
        for (;;) {
            send_due();
            double left_s = due_.empty() ? 1.0 : std::max(0.0, due_.top().first - now_s());
            timespec timeout{time_t(left_s), long(1e9 * (left_s - time_t(left_s)))};
            int n = epoll_pwait2(epoll_, events.data(), events.size(), &timeout, nullptr);
            for (int i = 0; i < n; ++i) events[i].data.fd == listener_ ? accept_one() : read_one(events[i].data.fd);
        }
    }

  private:
    void watch(int fd) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = fd;
        epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }

    void accept_one() {
        int fd = accept(listener_, nullptr, nullptr), on = 1;
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connections_[fd] = Connection();
        watch(fd);
    }

    void read_one(int fd) {
        char data[65536];
        ssize_t n = recv(fd, data, sizeof data, 0);
        double now = now_s();
        Connection &connection = connections_[fd];
        if (n <= 0) {
            if (connection.request) connection.request->fd = -1;
            connections_.erase(fd);
            close(fd);
            return;
        }
        std::string &buffer = connection.buffer.append(data, n);
        size_t end = buffer.find("\r\n\r\n");
        if (end == std::string::npos) return;
        std::string head = buffer.substr(0, end);
        size_t whole = end + 4 + number_after(head, "content-length:", 0);
        if (buffer.size() < whole) return;
        std::string body = buffer.substr(end + 4, whole - end - 4);
        buffer.erase(0, whole);
        head.compare(0, 4, "POST") ? answer(fd, head) : begin(fd, connection, body, now);
    }

    void begin(int fd, Connection &connection, const std::string &body, double now) {
        int asked = number_after(body, "\"max_tokens\":", 16);
        requests_.push_back({fd, prompt_tokens(body), asked, now, {}});
        connection.request = &requests_.back();
        connection.request->sent.reserve(asked);
        write_all(fd, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                      "transfer-encoding: chunked\r\n\r\n");
        due_.push({now + ttft_s_, connection.request});
    }

    void answer(int fd, const std::string &head) {
        std::vector<double> truth;
        bool known = head.compare(0, 11, "GET /served") == 0;
        for (const Request &r : requests_) {
            if (!known) break;
            truth.insert(truth.end(), {double(r.asked), double(r.sent.size()), r.received});
            truth.insert(truth.end(), r.sent.begin(), r.sent.end());
        }
        size_t size = truth.size() * sizeof(double);
        write_all(fd, std::string("HTTP/1.1 ") + (known ? "200 OK" : "404 Not Found") +
                          "\r\ncontent-length: " + std::to_string(size) + "\r\n\r\n");
        write_all(fd, reinterpret_cast<const char *>(truth.data()), size);
    }

    void send_due() {
        while (!due_.empty()) {
            auto [due, request] = due_.top();
            double now = now_s();
            if (due > now) return;
            due_.pop();
            if (request->fd < 0) continue;
            request->sent.push_back(now);
            write_all(request->fd, token_);
            if (int(request->sent.size()) < request->asked)
                due_.push({due + itl_s_, request});
            else
                finish(*request);
        }
    }

    void finish(Request &request) {
        std::string usage = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":" +
                            std::to_string(request.prompt) +
                            ",\"completion_tokens\":" + std::to_string(request.asked) + "}}\n\n";
        connections_[request.fd].request = nullptr;
        write_all(request.fd, chunk(usage) + chunk("data: [DONE]\n\n") + "0\r\n\r\n");
    }

    const double ttft_s_, itl_s_;
    const int epoll_;
    int listener_;
    const std::string token_ =
        chunk("data: {\"id\":\"cmpl-8f4b1c52a1d94be3a9d5d0c9a1f0b6de-0\",\"object\":\"text_completion\","
              "\"created\":1764510000,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\" token\",\"logprobs\":null,"
              "\"finish_reason\":null,\"stop_reason\":null,\"token_ids\":null}],\"usage\":null}\n\n");
    std::map<int, Connection> connections_;
    std::deque<Request> requests_;
    std::priority_queue<Due, std::vector<Due>, std::greater<Due>> due_;
};

int main(int, char **arguments) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    Server server(atof(arguments[2]), atof(arguments[3]));
    std::string port_file = arguments[1], fresh = port_file + ".new";
    FILE *file = fopen(fresh.c_str(), "w");
    if (!file) return 1;
    fprintf(file, "%d", server.port());
    fclose(file);
    rename(fresh.c_str(), port_file.c_str());
    server.run();
}
