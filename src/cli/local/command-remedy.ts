/** Stands for one of several tunnels. */
const SOME = 'NAME'

type Form = (set: string, value: string, tunnel: string) => string

/** Remedies of the API name fields of a tunnel. `set`: the command that changes it. */
const FORMS: readonly (readonly [RegExp, Form])[] = [
  [
    /raise upstream\.timeout of the tunnel above (\d+) s/gi,
    (set, seconds) => `run ${set} --upstream-timeout SECONDS with more than ${seconds}`,
  ],
  [
    /raise upstream\.max_connections of the tunnel above (\d+)/gi,
    (set, count) => `run ${set} --max-connections COUNT with more than ${count}`,
  ],
  [/set upstream\.verify_tls of the tunnel to false/gi, (set) => `run ${set} --no-verify-tls`],
  [/set upstream\.http2 of the tunnel to true/gi, (set) => `run ${set} --http2`],
  [
    /set upstream\.tls_min_version of the tunnel to "1\.0"/gi,
    (set) => `run ${set} --tls-min-version 1.0`,
  ],
  [/forward to (https:\/\/\S+?)(?=\.?(?:\s|$))/gi, (set, service) => `run ${set} ${service}`],
  [
    /forward to the port that it uses/gi,
    (set) => `run ${set} PORT with the port that the service uses`,
  ],
  [
    /set pooling_enabled on all tunnels of the domain or on none/gi,
    (set) => `run ${set} --pooling on all devices of the domain, or --no-pooling on all`,
  ],
  [
    /correct the policy and replace the tunnel/gi,
    (_set, _value, tunnel) =>
      `correct the policy, then run device-agent tunnels set-policy ${tunnel} FILE`,
  ],
]

/** Returns a remedy of the API for the command line. `tunnel`: the only tunnel that it is for. */
export function commandRemedy(remedy: string, tunnel = SOME): string {
  const set = `device-agent tunnels set ${tunnel}`
  return FORMS.reduce(
    (text, [pattern, form]) =>
      text.replace(pattern, (found: string, value: unknown) => {
        const command = form(set, String(value), tunnel)
        const isFirst = found[0] === found[0]?.toUpperCase()
        return isFirst ? `${command[0]?.toUpperCase()}${command.slice(1)}` : command
      }),
    remedy,
  )
}
