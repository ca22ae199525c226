import { execFileSync } from 'node:child_process'

const program = 'import json, sys, yaml; print(json.dumps([yaml.safe_load(d) for d in json.load(sys.stdin)]))'

/** Returns documents as PyYAML reads them, which cloud-init and subiquity use. Python loads it once for all. */
export function parsedYaml(documents: readonly string[]): ReturnType<typeof JSON.parse>[] {
  const input = JSON.stringify(documents)
  return JSON.parse(execFileSync('python3', ['-c', program], { input, encoding: 'utf8' }))
}
