// The bar at the top of every page: the way to the side bar on a small screen, the title, and what the page adds.

import { ActionIcon } from "@mantine/core";
import { IconMenu2 } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { useWords } from "../i18n";
import classes from "./PageHead.module.css";

interface Props {
  title: string;
  openSidebar: (() => void) | null;
  under?: ReactNode;
  children?: ReactNode;
}

export function PageHead({ title, openSidebar, under, children }: Props) {
  const words = useWords();
  return (
    <header className={classes.head}>
      {openSidebar && (
        <ActionIcon
          variant="subtle"
          color="gray"
          c="dimmed"
          size="lg"
          aria-label={words.sidebar.open}
          onClick={openSidebar}
        >
          <IconMenu2 size={20} />
        </ActionIcon>
      )}
      <div className={classes.names}>
        <h1>{title}</h1>
        {under}
      </div>
      {children}
    </header>
  );
}
