// The Task Dashboard's page: a trusted component that draws the instance's snapshot and its calls. What may be done to a
// task is the MiniApp's and the Runtime's business.

import { Button, Collapse, Progress, Text, Title } from "@mantine/core";
import { IconChevronDown, IconChevronUp, IconListCheck, IconX } from "@tabler/icons-react";
import { useId, useState } from "react";
import { useTimes, useWords } from "../i18n";
import type { Instance } from "../runtime/rows";
import { useClient, useSaved } from "../state/react";
import { Empty } from "../ui/Empty";
import { Status, toneOf } from "../ui/Status";
import classes from "./TaskDashboard.module.css";
import { type Step, type Task, tasksOf } from "./tasks";

export default function TaskDashboard({ instance }: { instance: Instance }) {
  const words = useWords();
  const client = useClient();
  const state = useSaved(instance.instance_id) ?? undefined;
  const tasks = tasksOf(state);
  const done = tasks.filter((task) => task.status === "completed").length;
  return (
    <div className={classes.board} data-testid="task-dashboard">
      <header className={classes.head}>
        <div>
          <Title order={3}>{words.tasks.title}</Title>
          <Text size="sm" c="dimmed">
            {words.tasks.summary(done, tasks.length)}
          </Text>
        </div>
        <Button
          variant="default"
          leftSection={<IconX size={16} aria-hidden="true" />}
          onClick={() => void client.act("instance.close", { instance_id: instance.instance_id })}
        >
          {words.tasks.closeBoard}
        </Button>
      </header>
      {tasks.length === 0 ? (
        <Empty
          icon={<IconListCheck size={44} stroke={1.3} />}
          title={words.tasks.empty}
          hint={words.tasks.emptyHint}
        />
      ) : (
        <ul className={classes.tasks}>
          {tasks.map((task) => (
            <li key={task.task_id}>
              <TaskCard task={task} />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function TaskCard({ task }: { task: Task }) {
  const words = useWords();
  const [open, setOpen] = useState(false);
  const title = useId();
  const history = useId();
  const percent = Math.round(task.progress * 100);
  return (
    <article className={classes.task} data-status={task.status} aria-labelledby={title} data-testid="task">
      <div className={classes.line}>
        <h4 id={title}>{task.title}</h4>
        <Status tone={toneOf(task.status)}>{words.tasks.status[task.status] ?? task.status}</Status>
      </div>
      <div className={classes.line}>
        <Progress.Root className={classes.progress} size="lg" radius="xl">
          <Progress.Section
            value={percent}
            color={BAR_COLOURS[task.status] ?? "brand"}
            animated={task.status === "running" && percent < 100}
            aria-label={`${words.tasks.progress}: ${task.title}`}
          />
        </Progress.Root>
        <Text size="sm" fw={600} className={classes.percent}>
          {percent}%
        </Text>
      </div>
      {task.note && (
        <Text size="sm" c="dimmed">
          {task.note}
        </Text>
      )}
      {task.history.length > 0 && (
        <>
          <Button
            variant="subtle"
            size="compact-sm"
            color="gray"
            c="dimmed"
            aria-expanded={open}
            aria-controls={history}
            aria-label={`${words.tasks.history}: ${task.title}`}
            leftSection={open ? <IconChevronUp size={14} /> : <IconChevronDown size={14} />}
            onClick={() => setOpen(!open)}
          >
            {words.tasks.history} ({words.tasks.updates(task.history.length)})
          </Button>
          <div id={history}>
            <Collapse expanded={open}>
              <ol className={classes.history}>
                {task.history.toReversed().map((step, index) => (
                  <HistoryLine key={`${step.call_id}:${index}`} step={step} />
                ))}
              </ol>
            </Collapse>
          </div>
        </>
      )}
    </article>
  );
}

const BAR_COLOURS: Record<string, string> = { completed: "green.8", failed: "red.8", cancelled: "gray.6" };

function HistoryLine({ step }: { step: Step }) {
  const words = useWords();
  const times = useTimes();
  return (
    <li>
      <time dateTime={step.at}>{times.time(step.at)}</time>
      <span>{words.tasks.status[step.status] ?? step.status}</span>
      <span>{Math.round(step.progress * 100)}%</span>
      {step.note && <span className={classes.note}>{step.note}</span>}
    </li>
  );
}
