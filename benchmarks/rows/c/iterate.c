/* Goes through a RocksDB once, forwards, with the C API: how many keys there are, and a sum of them. */
#include <inttypes.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int main(int count, char **arguments) {
  char *error = NULL;
  struct timespec began, ended;
  if (count != 2) return 2;
  clock_gettime(CLOCK_MONOTONIC, &began);
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_t *database = rocksdb_open_for_read_only(options, arguments[1], 0, &error);
  if (error) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  rocksdb_readoptions_t *reading = rocksdb_readoptions_create();
  rocksdb_iterator_t *at = rocksdb_create_iterator(database, reading);
  uint64_t keys = 0, sum = 0, half;
  for (rocksdb_iter_seek_to_first(at); rocksdb_iter_valid(at); rocksdb_iter_next(at)) {
    size_t size;
    const char *key = rocksdb_iter_key(at, &size);
    memcpy(&half, key, sizeof half);
    sum += half + size;
    keys++;
  }
  rocksdb_iter_destroy(at);
  rocksdb_close(database);
  clock_gettime(CLOCK_MONOTONIC, &ended);
  double seconds = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
  printf("{\"seconds\": %f, \"keys\": %" PRIu64 ", \"sum\": %" PRIu64 "}\n", seconds, keys, sum);
  return 0;
}
