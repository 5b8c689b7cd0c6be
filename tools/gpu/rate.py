"""Prints the images a second of worker 0 whose metrics lie in a folder, without
the first third of its steps."""

import json
import sys


def main(folder):
    lines = [json.loads(line) for line in open(folder + '/worker-0.jsonl')]
    steps = [line for line in lines if line.get('event') == 'step']
    if not steps:
        return 'no step is reported'
    last = steps[-1]
    first = next(step for step in steps if step['step'] >= last['step'] / 3)
    seconds = last['seconds'] - first['seconds']
    if first is last or seconds <= 0:  # workers report some times a second
        return 'too few reports of %d steps: train for longer' % last['step']
    print('%.0f' % ((last['step'] - first['step']) * lines[0]['global_batch'] / seconds))


sys.exit(main(sys.argv[1]))
