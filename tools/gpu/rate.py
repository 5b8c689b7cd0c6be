"""Prints the images a second of worker 0 whose metrics lie in a folder, without
the first third of its steps."""

import json
import sys

lines = [json.loads(line) for line in open(sys.argv[1] + '/worker-0.jsonl')]
start = lines[0]
steps = [line for line in lines if line.get('event') == 'step']
last = steps[-1]
first = next(step for step in steps if step['step'] >= last['step'] / 3)
images = (last['step'] - first['step']) * start['global_batch']
print('%.0f' % (images / (last['seconds'] - first['seconds'])))
